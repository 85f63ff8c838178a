"""Layers made of work, from an operator graph: cuts, branches, fusion, and layers that are built once."""
