"""Data sets of whole models and of training runs."""
