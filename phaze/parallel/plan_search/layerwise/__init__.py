"""Choices of every layer: what of it recomputes, and what replicas divide."""
