"""Hugging Face models by their `config.json`."""
