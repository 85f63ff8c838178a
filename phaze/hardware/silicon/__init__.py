"""What a chip takes to build and to run: die area, power, clock under a power cap, price."""
