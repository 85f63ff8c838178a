"""Operator on architecture: latency, bytes, energy; collectives."""
