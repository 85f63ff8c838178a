"""Dividing a layer over devices: the roles of its operators, and one module per degree that rewrites them."""
