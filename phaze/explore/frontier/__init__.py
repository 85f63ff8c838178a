"""Pareto frontiers: archives of non-dominated points, points on any axes, and the certified search for all of them."""
