"""Independent checks of plans: every figure counted a second time, in plain loops and from the definitions."""
