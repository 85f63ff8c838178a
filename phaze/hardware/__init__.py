"""The chip: architecture, field table, design space, area, power, network."""
