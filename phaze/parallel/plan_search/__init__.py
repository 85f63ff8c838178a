"""The best plan of a workload on one architecture, or on several, proved over every plan of a space."""
