"""Presentation of results: tables, plots."""
