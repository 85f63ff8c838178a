"""Plans whose stages are a graph: their cuts, their bounds, and the search over them."""
