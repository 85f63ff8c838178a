"""Old documents become new ones: a pure step from each version of a format to the next."""
