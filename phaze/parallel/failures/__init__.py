"""Failures of devices, hosts, links and domains: what they leave of a plan's throughput."""
