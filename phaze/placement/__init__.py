"""The cluster: memory, pipeline, parallel degrees; from layer times to iteration time."""
