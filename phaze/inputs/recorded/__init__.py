"""Questions that are on record: what was asked and of which files, in a run directory; and asked again."""
