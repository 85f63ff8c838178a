"""How far an answer can be trusted: the model has error bars, and the ranking of designs moves with them."""
