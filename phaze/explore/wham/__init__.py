"""WHAM's search: core dimensions by halving, cores added along the critical path, the best designs of every
pipeline stage combined by the placement program."""
