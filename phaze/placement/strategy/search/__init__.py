"""The best strategy of a workload on one architecture, proved over every strategy of a space."""
