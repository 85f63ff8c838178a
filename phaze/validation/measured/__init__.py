"""Rows of measurements: their columns, the chips, systems, models and runs that they stand for."""
