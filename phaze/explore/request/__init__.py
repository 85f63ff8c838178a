"""Request for a search: objective and metrics, budgets, plans it may use, and the time and workers it has."""
