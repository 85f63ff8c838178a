"""Evaluations of before: on disk, under the digest of everything it depends on."""
