"""Quantities in hardware YAML files: plain SI numbers, or a number with a unit of the field's dimension."""

from __future__ import annotations

import re

from phaze.errors import InputError

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_BYTES = {f"{prefix}B": scale for prefix, scale in {**_DECIMAL, **_BINARY}.items()}
_RATES = {f"{unit}/s": scale for unit, scale in _BYTES.items()}
_HERTZ = {f"{prefix}Hz": scale for prefix, scale in _DECIMAL.items()}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNITS = {"byte": _BYTES, "byte/s": _RATES, "Hz": _HERTZ, "s": _SECONDS}
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(\S*)")


def si_value(value: object, unit: str, where: str) -> float:
    """A number in SI units from `1.05e9`, `1.05GHz`, `128MiB`, `900GB/s`.

    `unit` is the SI unit of the field (`byte`, `byte/s`, `Hz`, `s`; others take no unit). Raises InputError.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    units = _UNITS.get(unit, {})
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or (match[2] and match[2] not in units):
        examples = f" or a number with one of {', '.join(units)}" if units else ""
        raise InputError(f"{where}: {value!r} is not a quantity; give a plain number in {unit}{examples}")
    return float(match[1]) * (units[match[2]] if match[2] else 1.0)
