"""Parallel plans: how a workload is spread over a cluster, what that takes, and which plan is best."""
