"""Options of every verb, by what they are about."""
