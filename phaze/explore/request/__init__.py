"""What is asked of a search: objective and metrics, budgets, the plans it may use, and the time and workers it has."""
