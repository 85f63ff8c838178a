"""NumPy arrays as Arrow arrays, from their memory: `pyarrow.array` loads pandas where it is installed, for 0.2 s."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def arrow_array(values: NDArray[Any]) -> pa.Array:
    """Numbers, truth values or words (A,) as `pyarrow.array` has them; anything else is left to it."""
    array = np.ascontiguousarray(values)
    if array.dtype.kind in "iuf":
        return _of(pa.from_numpy_dtype(array.dtype), len(array), array)
    if array.dtype.kind == "b":
        return _of(pa.bool_(), len(array), np.packbits(array, bitorder="little"))
    if array.dtype.kind == "U":
        words = [word.encode() for word in array.tolist()]
        ends = np.fromiter(accumulate(map(len, words), initial=0), dtype=np.int32)
        return _of(pa.string(), len(array), ends, b"".join(words))
    return pa.array(array)


def _of(kind: pa.DataType, length: int, *content: NDArray[Any] | bytes) -> pa.Array:
    """An array without missing values."""
    return pa.Array.from_buffers(kind, length, [None, *map(pa.py_buffer, content)])
