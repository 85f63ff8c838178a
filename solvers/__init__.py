"""Combinatorial optimisation: operator scheduling, stage partition. Numbers and graphs in, result with bound out."""
