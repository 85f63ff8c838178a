"""The calibrated rung: laws whose constants are fitted on measurements of a chip family.

For existing chips only; a chip nobody has built has no family to be measured. So far products have laws,
`simt.py` for chips of many multiprocessors and `serial.py` for TPUs, and so have collectives among devices
on one switch (`switched.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, model_validator

from phaze.cost.serial import SerialChip, SerialLaw, SerialProducts, serial_products_s
from phaze.cost.simt import Products, SimtChip, SimtLaw, products_s
from phaze.cost.switched import SwitchLaw, switched_s
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, peak_clock_hz, peak_flops_per_s
from phaze.workload.work import Gemm, Traffic, Work
from phaze.yaml_file import parse_yaml

Floats = NDArray[np.float64]


class Calibration(BaseModel):
    """Constants of one chip family, what they were fitted on and how well they fit that, by data set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    chips: tuple[str, ...]
    fitted_on: str
    error_pct: Mapping[str, float]
    tiles: SimtLaw | None = None
    serial: SerialLaw | None = None
    switch: SwitchLaw | None = None

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        """A family has exactly one law for products."""
        if (self.tiles is None) == (self.serial is None):
            msg = f"family {self.family}: give either tiles or serial"
            raise ValueError(msg)
        return self

    def products_s(self, gemms: Sequence[Gemm], chip: Architecture) -> Floats:
        """Seconds of products on a chip of the family, (G,)."""
        sizes = np.array([(g.groups, g.m, g.k, g.n) for g in gemms], dtype=np.float64)
        groups, m, k, n = sizes.T
        load = np.array([g.a_bytes + g.b_bytes for g in gemms])
        store = np.array([g.c_bytes for g in gemms])
        if self.tiles is not None:
            return products_s(Products(groups, m, k, n, load + store), simt_chip(chip), self.tiles)
        if self.serial is not None:
            return serial_products_s(
                SerialProducts(groups, m, k, n, load, store), serial_chip(chip), self.serial
            )
        msg = "a family has one law, checked where it is read"
        raise AssertionError(msg)


@cache
def calibrations() -> tuple[Calibration, ...]:
    """Calibrations shipped with the model."""
    text = files("phaze.cost").joinpath("calibrations.yaml").read_text(encoding="utf-8")
    content = parse_yaml(text, "cost/calibrations.yaml")
    return TypeAdapter(tuple[Calibration, ...]).validate_python(content)


def calibration_of(chip: str) -> Calibration | None:
    """Calibration of the family that a chip, by its name, belongs to; None where there is none."""
    return next((c for c in calibrations() if chip in c.chips), None)


def calibrated_s(works: Sequence[Work], chip: Architecture) -> Floats:
    """Seconds of each operator on an otherwise idle chip, (O,); NaN where nothing is calibrated for it."""
    seconds = np.full(len(works), np.nan)
    calibration = calibration_of(chip.name)
    if calibration is None:
        return seconds
    gemms = {i: gemm for i, work in enumerate(works) if (gemm := _single_product(work)) is not None}
    if gemms:
        seconds[list(gemms)] = calibration.products_s(list(gemms.values()), chip)
    links = {i: work.link for i, work in enumerate(works) if work.link is not None}
    if links and calibration.switch is not None:
        bandwidth = float(to_table([chip])["link_bandwidth_bytes_per_s"][0])
        seconds[list(links)] = switched_s(list(links.values()), bandwidth, calibration.switch)
    return seconds


def simt_chip(chip: Architecture) -> SimtChip:
    """The fields of a chip that the tile law needs."""
    table = to_table([chip])
    return SimtChip(
        multiprocessors=float(table["vector_cores"][0]),
        clock_hz=float(peak_clock_hz(table)[0]),
        peak_flop_per_s=float(peak_flops_per_s(table)[0]),
        memory_bytes_per_s=float(hbm_bandwidth_bytes_per_s(table)[0]),
        cache_bytes=float(table["global_buffer_bytes"][0]),
    )


def serial_chip(chip: Architecture) -> SerialChip:
    """The fields of a chip that the serial law needs."""
    table = to_table([chip])
    return SerialChip(
        rows=float(table["tensor_core_rows"][0]),
        columns=float(table["tensor_core_columns"][0]),
        peak_flop_per_s=float(peak_flops_per_s(table)[0]),
        memory_bytes_per_s=float(hbm_bandwidth_bytes_per_s(table)[0]),
    )


def _single_product(work: Work) -> Gemm | None:
    """The product of an operator that is one, with nothing else to move."""
    alone = len(work.gemms) == 1 and work.stream_bytes == 0 and work.vector_cycles == 0
    return work.gemms[0] if alone and work.gemms[0].traffic is Traffic.TILED else None
