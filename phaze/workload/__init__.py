"""The model: operator graph, front ends, training graph, fusion, sharding, layers."""
