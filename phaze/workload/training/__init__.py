"""What training adds to a forward graph: loss, backward pass, recompute, and the numerics of the optimizer."""
