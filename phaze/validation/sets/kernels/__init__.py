"""Data sets of single operators and kernels."""
