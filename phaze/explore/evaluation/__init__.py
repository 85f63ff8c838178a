"""From points of a design space to bounds, exact values and whole designs: candidates, training configurations,
costs.
"""
