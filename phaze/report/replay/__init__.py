"""A plan of a result document played again: every pass of every stage, layer and operator, with its time."""
