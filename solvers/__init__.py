"""Combinatorial optimisation: operator scheduling, stage partition. Numbers in, result with bound out."""
