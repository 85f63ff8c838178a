"""SCALE-Sim, the reference simulator of systolic arrays, as formulas: its layouts, its cycles, its stalls."""
