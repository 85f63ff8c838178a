"""The data sets, one module per kind of measurement."""
