"""Quantities with units, parsed once at the edge into the SI floats used everywhere inside.

Bytes follow the two conventions people mix up: kB, MB, GB are powers of ten, KiB, MiB, GiB powers of two.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError

if TYPE_CHECKING:
    from pint import UnitRegistry

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER_AND_UNIT = re.compile(rf"\s*({_NUMBER})\s*([A-Za-zµμ]+(?:\s?\^?[23²³])?(?:/[A-Za-zµμ]+)?)?\s*")
_EXPONENT = re.compile(r"\s?\^?([23²³])(?=$|/)")
_BYTES = r"[A-Za-z]*(B|bytes?|bits?)"


@dataclass(frozen=True)
class Kind:
    """What a quantity measures: its name, the unit of the resulting float, and examples of right input.

    `spelling` narrows the units where pint would not: to pint a byte is a plain number and so is a
    radian, which makes 5 rad/s and 300 GHz good data rates.
    """

    name: str
    unit: str
    examples: str
    spelling: str = ".*"
    bare_number: bool = False


POWER = Kind("power", "watt", "400W or 0.4kW")
AREA = Kind("area", "millimeter ** 2", "800mm2 or 8cm2")
SIZE = Kind("memory size", "byte", "80GiB (binary) or 80GB (decimal)", _BYTES)
RATE = Kind("data rate", "byte / second", "300GB/s", _BYTES + "/[a-z]+")
FREQUENCY = Kind("frequency", "hertz", "1.05GHz", "[A-Za-z]*(Hz|hertz)")
TIME = Kind("duration", "second", "10s, 2min or a bare number of seconds", bare_number=True)


def parse_power(text: str, name: str = "power") -> float:
    """Watts; `name` is what the error calls the value, for instance `--power`."""
    return parse(text, POWER, name)


def parse_area(text: str, name: str = "area") -> float:
    """Square millimetres."""
    return parse(text, AREA, name)


def parse_size(text: str, name: str = "size") -> float:
    """Bytes."""
    return parse(text, SIZE, name)


def parse_rate(text: str, name: str = "rate") -> float:
    """Bytes per second."""
    return parse(text, RATE, name)


def parse_frequency(text: str, name: str = "frequency") -> float:
    """Hertz."""
    return parse(text, FREQUENCY, name)


def parse_time(text: str, name: str = "time") -> float:
    """Seconds; a bare number is seconds."""
    return parse(text, TIME, name)


def parse(text: str, kind: Kind, name: str) -> float:
    """A finite positive quantity in the unit of `kind`.

    Raises InputError that names the value and says what would be right.
    """
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        raise _error(text, kind, name, f"is not a {kind.name}")
    number, unit = float(match[1]), match[2] or ""
    factor = _factor(unit, kind)
    if factor is None:
        raise _error(text, kind, name, f"is not a {kind.name}" if unit else "has no unit")
    value = number * factor
    if not (math.isfinite(value) and value > 0):
        raise _error(text, kind, name, "must be finite and greater than zero")
    return value


def _factor(unit: str, kind: Kind) -> float | None:
    """How many target units one `unit` is; none where it does not measure `kind`."""
    if not unit:
        return 1.0 if kind.bare_number else None
    if not re.fullmatch(kind.spelling, unit):
        return None
    return _convert(_EXPONENT.sub(_power, unit), kind.unit)


def _power(exponent: re.Match[str]) -> str:
    """The exponent as pint writes it: `**2`."""
    return "**" + exponent[1].translate({ord("²"): "2", ord("³"): "3"})


@cache
def _convert(unit: str, target: str) -> float | None:
    """The factor between two units; none where they differ in dimension or the first is unknown."""
    import pint

    try:
        return float(_registry().Quantity(1.0, unit).to(target).magnitude)
    except (pint.PintError, ValueError, TypeError, AttributeError):
        return None


@cache
def _registry() -> UnitRegistry[Any]:
    """The one table of units (building it takes a tenth of a second, hence the cache)."""
    import pint

    return pint.UnitRegistry()


def _error(text: str, kind: Kind, name: str, problem: str) -> InputError:
    return InputError(f"{name} {text!r} {problem}; write for example {kind.examples}")
