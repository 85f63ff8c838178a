"""What the parts of area, power and time are called, and their colours: one for each group that belongs together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phaze.report.format import label


@dataclass(frozen=True, slots=True)
class Part:
    """A part in words, and the class that colours it: 1, 2 compute, 3 storage, 4 interfaces, 6, 7 everything else."""

    name: str
    look: str


_AREA = {
    "mac": Part("tensor cores", "c1"),
    "lane": Part("vector ALUs", "c2"),
    "int32": Part("int32 ALUs", "c2"),
    "fp64": Part("fp64 ALUs", "c2"),
    "simt": Part("SIMT control", "c2"),
    "registers": Part("registers", "c3"),
    "local": Part("local buffers", "c3"),
    "global": Part("global buffer", "c3"),
    "hbm_phy": Part("HBM interface", "c4"),
    "link": Part("links", "c4"),
    "overhead": Part("network on chip, clock, spare", "c6"),
    "misc": Part("PCIe, PLLs", "c7"),
}
_POWER = {
    "mac": Part("tensor cores", "c1"),
    "operands": Part("operand delivery", "c1"),
    "vector": Part("vector ALUs", "c2"),
    "hbm": Part("HBM traffic", "c4"),
    "hbm_background": Part("HBM refresh, idle", "c4"),
    "link": Part("links", "c4"),
    "background": Part("clock and control", "c6"),
    "leakage": Part("leakage", "c7"),
}
TIME: Mapping[str, Part] = {
    "compute_s": Part("compute", "c1"),
    "memory_s": Part("waiting for memory", "c3"),
    "collective_s": Part("communication", "c4"),
    "bubble_s": Part("pipeline fill and drain", "c7"),
    "optimizer_s": Part("optimizer step", "c5"),
    "host_s": Part("waiting for the host", "c6"),
}
GROUPS: Mapping[str, str] = {
    "c1": "matrix compute",
    "c2": "vector compute",
    "c3": "storage",
    "c4": "interfaces",
    "c6": "everything else",
}


def area_part(name: str) -> Part:
    """A part of the area; one that nobody knows is called by its name."""
    return _AREA.get(name, Part(label(name), "c6"))


def power_part(name: str) -> Part:
    """A part of the power."""
    return _POWER.get(name, Part(label(name), "c6"))
