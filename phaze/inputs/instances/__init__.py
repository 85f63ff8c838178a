"""Instances of the solvers alone: files as `dse solve` reads them, checked, and what becomes of them."""
