"""Training on top of a forward graph: loss, backward pass, recompute, and the numerics of the optimizer."""
