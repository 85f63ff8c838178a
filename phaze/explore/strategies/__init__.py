"""Searches without proof over the same evaluation as the certified one: PHAZE's, WHAM's, sampled."""
