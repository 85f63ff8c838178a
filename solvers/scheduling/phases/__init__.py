"""Schedules seen from the cores: one operator alone on the chip, or several beside each other, phase after phase."""
