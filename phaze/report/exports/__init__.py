"""Architectures and workloads as input files of other simulators."""
