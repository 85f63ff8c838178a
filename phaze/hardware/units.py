"""Quantities in hardware YAML files: plain SI numbers, or a number with a unit of the field's dimension."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from phaze.errors import InputError

# Decimals, so that 5us is exactly the float 5e-6.
_DECIMAL = {
    "": Decimal(1),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
}
_BINARY = {prefix: Decimal(1 << 10 * (k + 1)) for k, prefix in enumerate(("Ki", "Mi", "Gi", "Ti"))}
_BYTES = {f"{prefix}B": scale for prefix, scale in {**_DECIMAL, **_BINARY}.items()}
_RATES = {f"{unit}/s": scale for unit, scale in _BYTES.items()}
_HERTZ = {f"{prefix}Hz": scale for prefix, scale in _DECIMAL.items()}
_SECONDS = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}
_UNITS = {"byte": _BYTES, "byte/s": _RATES, "Hz": _HERTZ, "s": _SECONDS}
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(\S*)")


def si_value(value: object, unit: str, where: str) -> float:
    """A number in SI units from `1.05e9`, `1.05GHz`, `128MiB`, `900GB/s`.

    `unit` is the SI unit of the field (`byte`, `byte/s`, `Hz`, `s`; others take no unit). Raises InputError.
    """
    number, units = _number(value, unit), _UNITS.get(unit, {})
    if number is None or not math.isfinite(number):
        examples = f" or a number with one of {', '.join(units)}" if units else ""
        raise InputError(f"{where}: {value!r} is not a quantity; give a plain number in {unit}{examples}")
    return number


def _number(value: object, unit: str) -> float | None:
    """The number in SI units, infinite where it is too large for a float; None where it is no quantity."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e300 else math.inf
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    scale = {"": Decimal(1), **_UNITS.get(unit, {})}.get(match[2])
    return None if scale is None else float(Decimal(match[1]) * scale)
