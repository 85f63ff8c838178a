"""A plan in time: the pieces of its passes, the operators of each, and when every one runs."""
