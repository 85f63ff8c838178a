"""State-space search: plain for few states, compiled for many."""
