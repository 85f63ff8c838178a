"""Better schedules: modes from the linear program, local search with justification."""
