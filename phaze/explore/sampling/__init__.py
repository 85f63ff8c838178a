"""Sampling with Optuna: parameters of a space, samplers, studies in batches, their record, parallel workers."""
