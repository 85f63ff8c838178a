"""Pipeline schedules: who runs what in which order, how long it takes, and what it keeps in memory."""
