"""Arrays of NumPy by what they hold: one name for each, everywhere in the solvers."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
"""Figures: seconds, bytes, watts, shares."""

Integers = NDArray[np.int64]
"""Counts and numbers of things."""

Rows = NDArray[np.intp]
"""Positions in another array."""

Flags = NDArray[np.bool_]
"""True where something holds."""
