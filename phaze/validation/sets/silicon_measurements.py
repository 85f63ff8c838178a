"""Published die sizes and thermal design powers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import FROM_LIMIT, Architecture, to_table
from phaze.hardware.silicon.die_area import area_mm2, area_parts_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE

_ON_PHOTOS = {
    "cores": ("cores", "on_chip_interconnect"),
    "global buffer": ("global_buffer",),
    "memory": ("memory_",),
    "rest": ("off_chip_interconnect", "other"),
}
"""Parts that the model tells apart, by how the names of their components begin."""


_RECALLED = {"die_mm2": r"die size recalled", "tdp_w": r"TDP\b[^;,]*\brecalled"}
"""Notes of a row by the figure that is in no source; the table's own words."""

_PRODUCTS_BY_POWER = frozenset({"hopper"})
"""Families whose energy of a product rests on their TDP alone (docs/decisions/0084-bursts-are-not-sustained.md)."""


def areas(columns: Columns) -> Judged:
    """Die area in mm2, but for sizes that the table itself does not vouch for."""
    return _figures(columns, "die_mm2", lambda chip: float(area_mm2(to_table([chip]))[0]))


def powers(columns: Columns) -> Judged:
    """Thermal design power in W as vendors publish it, against the model's at the sustained clock.

    Chips whose clock or energy is solved from that very power tell nothing, nor does what the table itself does not
    vouch for.
    """
    return _figures(columns, "tdp_w", lambda chip: float(tdp_w(to_table([chip]))[0]), _follows)


def _follows(chip: Architecture) -> str | None:
    """What of a chip was solved from its published power, so that its row tells nothing."""
    if chip.sources.get("clock_hz", "").startswith(FROM_LIMIT):
        return "its clock follows from the figure"
    by_power = chip.value("family") in _PRODUCTS_BY_POWER
    return "the energy of its products follows from the figure" if by_power else None


def breakdown(columns: Columns) -> Judged:
    """Area in mm2 of what can be distinguished on photos of dies and in the model."""
    published: dict[tuple[str, str], float] = {}
    excluded: Counter[str] = Counter()
    rows = zip(columns["chip"], columns["component"], columns.numbers("area_mm2"), strict=True)
    for name, component, area in rows:
        part = next((part for part, found in _ON_PHOTOS.items() if component.startswith(found)), None)
        if part is None:
            excluded["a component that the model does not have"] += 1
        elif chip_of(name) is None:
            excluded[NO_TEMPLATE] += 1
        elif (name, part) in published:
            excluded["joined with another component of its part"] += 1
            published[name, part] += float(area)
        else:
            published[name, part] = float(area)
    parts = {name: _parts_mm2(chip) for name, _ in published if (chip := chip_of(name))}
    predicted = np.array([parts[name][part] for name, part in published])
    return Judged(np.array(list(published.values())), {Fidelity.ANALYTIC: predicted}, dict(excluded))


def _parts_mm2(chip: Architecture) -> dict[str, float]:
    """Area by part; the overhead goes to cores and global buffer by their size."""
    parts = {name: float(area[0]) for name, area in area_parts_mm2(to_table([chip])).items()}
    interfaces = {"memory": parts.pop("hbm_phy"), "rest": parts.pop("link") + parts.pop("misc")}
    overhead, buffer, cores = parts.pop("overhead"), parts.pop("global"), sum(parts.values())
    loaded = 1.0 + overhead / (buffer + cores)
    return {"cores": loaded * cores, "global buffer": loaded * buffer, **interfaces}


def _figures(
    columns: Columns,
    column: str,
    figure: Callable[[Architecture], float],
    known: Callable[[Architecture], str | None] = lambda _: None,
) -> Judged:
    """A published figure of each chip against the model's, but where the model was given it (`known` tells how)."""
    published, predicted, kept = columns.numbers(column), [], []
    notes = columns.text.get("note", ("",) * columns.rows)
    excluded: Counter[str] = Counter()
    for row, name in enumerate(columns["chip"]):
        chip = chip_of(name)
        if np.isnan(published[row]):
            excluded["not published"] += 1
        elif re.search(_RECALLED[column], notes[row]):
            excluded["recalled with low confidence"] += 1
        elif chip is None:
            excluded[NO_TEMPLATE] += 1
        elif (reason := known(chip)) is not None:
            excluded[reason] += 1
        else:
            kept.append(row)
            predicted.append(figure(chip))
    return Judged(published[kept], {Fidelity.ANALYTIC: np.array(predicted)}, dict(excluded))
