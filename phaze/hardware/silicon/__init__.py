"""Silicon of a chip: die area, power, clock under a power cap, price."""
