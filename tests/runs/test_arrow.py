"""Arrow arrays from memory: as pyarrow makes them, without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from phaze.runs.design_table import arrow_array


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.5, np.nan, -np.inf, 0.1]),
        np.arange(10)[::3],
        np.array([3, 255], dtype=np.uint8),
        np.array([0.1, 7], dtype=np.float32),
        np.array([True, False, True] * 7),
        np.array(["none", "", "µ-ß", "full"]),
        np.array([1.5, None, 3], dtype=object),
        np.array([]),
        np.array([], dtype=np.str_),
        np.array([], dtype=np.bool_),
    ],
    ids=lambda values: f"{values.dtype}-{len(values)}",
)
def test_the_same_as_pyarrow_makes(values):
    found, wanted = arrow_array(values), pa.array(values)
    found.validate(full=True)
    assert found.type == wanted.type
    assert repr(found.to_pylist()) == repr(wanted.to_pylist())


def test_pandas_is_not_loaded():
    code = (
        "import sys, numpy as np; from phaze.runs.design_table import arrow_array; "
        "arrow_array(np.ones(2)), arrow_array(np.array(['a'])), arrow_array(np.array([True])); "
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
