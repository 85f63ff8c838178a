"""Plans as launch recipes of training frameworks."""
