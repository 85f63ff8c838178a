"""Data sets of models that are served."""
