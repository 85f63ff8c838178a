"""Replicas of one kind: what their passes cost and hold, their steady state, and what they offer."""
