"""Fleets: pools of unlike devices, and pipelines whose stages lie on several of them."""
