"""Choices of every layer: what recomputes, what replicas divide, and how wide it runs."""
