"""Time of one optimizer step: a stream over all parameters of a device."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, vector_alus
from phaze.hardware.table import ArchitectureTable
from phaze.workload.workload import Numerics

Floats = NDArray[np.float64]


def optimizer_step_s(table: ArchitectureTable, parameters: ArrayLike, numerics: Numerics) -> Floats:
    """Seconds of one step over `parameters` elements of one device, which broadcast against the table.

    Every element passes once through all vector cores: arithmetic or HBM, whichever is slower.
    """
    count = np.asarray(parameters, dtype=np.float64)
    cycles = np.ceil(count * numerics.optimizer_vector_cycles / vector_alus(table))
    hbm_s = count * numerics.optimizer_traffic_bytes / hbm_bandwidth_bytes_per_s(table)
    return np.maximum(cycles / table["clock_hz"], hbm_s)
