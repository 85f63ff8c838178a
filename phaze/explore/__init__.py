"""Search over the design space: bounds, frontier, certificate."""
