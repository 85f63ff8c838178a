"""Pools of replicas: one for both phases, one for each, and pools of two kinds of chip."""
