"""Dividing a layer over devices: one module per degree, each rewriting operators and tensors."""
