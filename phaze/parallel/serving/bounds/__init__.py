"""What ways to serve are worth at most: by what they exchange, by lower bounds of their passes, or by exact ones."""
