"""Chains of layers: one dynamic program for one architecture and for many."""
