"""Chips, design spaces and networks, one YAML file each."""
