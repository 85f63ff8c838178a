"""The choice of modes as a linear program: bounds, and weightings of work."""
