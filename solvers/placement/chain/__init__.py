"""Chains of layers on stages of equal devices: one dynamic program for one architecture and for many.

The exact solver behind `dse solve placement` for instances of format `dse-placement/1`, and behind `place` and
`place_batch`. The plan model of the product does not search with it: that takes `partition` and `mixed`.
"""
