"""The best plan of a workload on one architecture of a cluster, and any plan that a user fixes."""
