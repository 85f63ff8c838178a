"""Verbs that read what a run directory holds: draw it, explain it, check it, make it again."""
