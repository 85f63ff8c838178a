"""What a collective takes on a network: its algorithms, also synthesised ones, and the time of the fastest."""
