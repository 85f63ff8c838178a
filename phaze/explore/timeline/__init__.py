"""The timeline of a plan of a result document: every pass of every stage, layer and operator, with its time."""
