"""Recorded operators as what a person means by them: norms, activations, rotations, attention, joint products."""
