"""One common design for several workloads: how to combine them, the certified search, what is reported."""
