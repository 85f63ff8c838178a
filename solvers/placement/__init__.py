"""Layers on pipeline stages: exact partition and placement."""
