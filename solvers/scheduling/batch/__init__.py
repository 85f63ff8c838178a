"""Bounds for many architectures at once."""
