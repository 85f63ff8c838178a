"""Many plans at once: the pipelines of a plan space for one shape of layers, their tables and lower bounds."""
