"""Which law costs which operator, and the constants of which family.

The analytic rung takes one set of constants for all chips (`generic`), so that it says something of chips
nobody has built; the calibrated rung takes those of the chip's family. An operator that no law costs is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze.cost.kernels.fitted import GENERIC, law_of
from phaze.cost.kernels.products import SimtLaw, simt_products_s
from phaze.cost.kernels.serial import SerialLaw, systolic_products_s
from phaze.cost.rung import Rung
from phaze.cost.switched import SwitchLaw, switched_s
from phaze.hardware.fields import field_table
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Traffic, Work

Floats = NDArray[np.float64]


class Shape(StrEnum):
    """Kinds of operators that have laws of their own."""

    PRODUCT = "product"
    LINK = "link"


Law = Callable[[Sequence[Work], ArchitectureTable, str], Floats | None]
"""(operators of one shape, a table of one chip, family) -> seconds (O,), None where nothing is fitted."""


def kernels_s(works: Sequence[Work], table: ArchitectureTable, rung: Rung) -> Floats:
    """Seconds of each operator alone on each chip, launch included, (A, O); NaN where no law costs it."""
    seconds = np.full((len(table), len(works)), np.nan)
    shapes = [shape_of(work) for work in works]
    for row in range(len(table)):
        chip = table.take([row])
        family = GENERIC if rung is Rung.ANALYTIC else str(field_table()["family"].decode(chip["family"][0]))
        for shape, law in _LAWS.items():
            where = [o for o, found in enumerate(shapes) if found is shape]
            if where:
                costed = law([works[o] for o in where], chip, family)
                seconds[row, where] = np.nan if costed is None else costed
    return seconds


def shape_of(work: Work) -> Shape | None:
    """The law that an operator needs; None where there is none yet."""
    if work.link is not None:
        return Shape.LINK
    alone = len(work.gemms) == 1 and work.stream_bytes == 0 and work.vector_cycles == 0
    return Shape.PRODUCT if alone and work.gemms[0].traffic is Traffic.TILED else None


def _products_s(works: Sequence[Work], chip: ArchitectureTable, family: str) -> Floats | None:
    """Products alone: tiles and waves on many multiprocessors, one after the other on few large arrays."""
    gemms = [work.gemms[0] for work in works]
    if chip["simt"][0]:
        tiles = law_of(SimtLaw, "products.yaml", family)
        return None if tiles is None else simt_products_s(gemms, chip, tiles)
    serial = law_of(SerialLaw, "serial.yaml", family)
    return None if serial is None else systolic_products_s(gemms, chip, serial)


def _links_s(works: Sequence[Work], chip: ArchitectureTable, family: str) -> Floats | None:
    """Collectives among devices on one switch."""
    law = law_of(SwitchLaw, "links.yaml", family)
    links = [work.link for work in works if work.link is not None]
    return None if law is None else switched_s(links, float(chip["link_bandwidth_bytes_per_s"][0]), law)


_LAWS: Mapping[Shape, Law] = MappingProxyType({Shape.PRODUCT: _products_s, Shape.LINK: _links_s})
