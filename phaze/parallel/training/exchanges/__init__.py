"""Exchanges of an iteration: collectives of layers, sums of gradients, gathers of weights."""
