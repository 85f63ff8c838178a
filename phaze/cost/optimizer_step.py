"""Time of one optimizer step: a stream over all parameters of a device."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s, vector_alus
from phaze.workload.workload import Numerics


def optimizer_s_per_parameter(table: ArchitectureTable, numerics: Numerics) -> Floats:
    """Seconds per parameter of a device, (A,): arithmetic on all vector cores or HBM, whichever is slower."""
    cycles = numerics.optimizer_vector_cycles / vector_alus(table)
    hbm_s = numerics.optimizer_traffic_bytes / hbm_bandwidth_bytes_per_s(table)
    return np.maximum(cycles / table["clock_hz"], hbm_s)
