"""Dividing a layer over devices: degrees, the roles of operators, and one module per degree that rewrites them."""
