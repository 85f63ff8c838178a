"""The operator graph, and one rule per operator kind: its work forward and backward, and what it keeps in between."""
