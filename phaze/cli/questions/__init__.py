"""Verbs that ask the model something: search, plan, evaluate, compare, validate, calibrate, solve."""
