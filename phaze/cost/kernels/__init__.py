"""Kernels: one operator alone on a chip as libraries run it, by laws of few constants per chip family."""
