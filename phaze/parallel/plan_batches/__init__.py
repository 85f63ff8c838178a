"""Many plans at once: the pipelines a plan space allows for one shape of layers, their tables, what they take at
least.
"""
