"""WHAM's search: core dimensions by halving, cores added along the critical path, the best design or one for every
stage.
"""
