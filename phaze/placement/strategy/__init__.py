"""Training as real clusters run it: from a strategy and a framework to the time and memory of an iteration."""
