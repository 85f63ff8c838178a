"""A run's claims worked out again, by other means than the search: `dse certify`."""
