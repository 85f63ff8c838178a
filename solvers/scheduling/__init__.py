"""Operators on cores: bounds, list schedules, exact methods, checker."""
