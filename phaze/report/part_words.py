"""Words for the parts of a chip's area and of its power, the same on pages and in terminals."""

from __future__ import annotations

from collections.abc import Mapping

AREA: Mapping[str, str] = {
    "mac": "tensor cores",
    "lane": "vector ALUs",
    "int32": "int32 ALUs",
    "fp64": "fp64 ALUs",
    "simt": "SIMT control",
    "registers": "registers",
    "local": "local buffers",
    "global": "global buffer",
    "hbm_phy": "HBM interface",
    "link": "links",
    "overhead": "network on chip, clock, spare",
    "misc": "PCIe, PLLs",
}
POWER: Mapping[str, str] = {
    "mac": "tensor cores",
    "operands": "operand delivery",
    "vector": "vector ALUs",
    "hbm": "HBM traffic",
    "hbm_background": "HBM refresh, idle",
    "link": "links",
    "background": "clock and control",
    "leakage": "leakage",
}
