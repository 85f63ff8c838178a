"""Quantities with units, parsed once at the edge into the SI floats used everywhere inside.

Bytes follow the two conventions people mix up: kB, MB, GB are powers of ten, KiB, MiB, GiB powers of two.
Everyday units stand in a table of exact factors, so that 5us is the float 5e-6 and reading the shipped
files does not wait for the units library; every other unit is looked up there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError

if TYPE_CHECKING:
    from pint import UnitRegistry

Quantity = str | float
"""A number with its unit, or a bare one in SI units (areas in mm2)."""

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER_AND_UNIT = re.compile(
    rf"\s*({_NUMBER})\s*([A-Za-zµμ]+(?:\s?\^?[23²³])?(?:/[A-Za-zµμ]+(?:\s?\^?[23²³])?)?)?\s*"
)
_EXPONENT = re.compile(r"\s?\^?([23²³])(?=$|/)")
_BYTES = r"[A-Za-z]*(B|bytes?|bits?)"

_TEN = {prefix: Decimal(10) ** e for prefix, e in (("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12))}
_TWO = {f"{prefix}i": Decimal(2) ** e for prefix, e in (("K", 10), ("M", 20), ("G", 30), ("T", 40))}
_SIZES = {f"{prefix}B": scale for prefix, scale in (_TEN | _TWO).items()}
_EXACT = {
    "byte": _SIZES,
    "byte / second": {f"{unit}/s": scale for unit, scale in _SIZES.items()},
    "hertz": {f"{prefix}Hz": scale for prefix, scale in _TEN.items()},
    "second": {"s": Decimal(1), "min": Decimal(60)}
    | {f"{p}s": Decimal(10) ** e for p, e in (("m", -3), ("u", -6), ("n", -9))},
    "watt": {f"{prefix}W": scale for prefix, scale in _TEN.items()},
    "watt / millimeter ** 2": {"W/mm2": Decimal(1), "W/cm2": Decimal("0.01")},
    "millimeter ** 2": {"mm2": Decimal(1), "cm2": Decimal(100)},
}


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

    @property
    def article(self) -> str:
        """Its article."""
        return "an" if self.name[0] in "aeiou" else "a"


POWER = Kind("power", "watt", "400W or 0.4kW")
AREA = Kind("area", "millimeter ** 2", "800mm2 or 8cm2")
POWER_DENSITY = Kind("power density", "watt / millimeter ** 2", "0.8W/mm2 or 80W/cm2")
SIZE = Kind("memory size", "byte", "80GiB (binary) or 80GB (decimal)", _BYTES)
RATE = Kind("data rate", "byte / second", "300GB/s", _BYTES + "/[a-z]+")
FREQUENCY = Kind("frequency", "hertz", "1.05GHz", "[A-Za-z]*(Hz|hertz)")
TIME = Kind("duration", "second", "10s, 2min or a bare number of seconds", bare_number=True)

_KINDS = (POWER, AREA, POWER_DENSITY, SIZE, RATE, FREQUENCY, TIME)


def parse_power(text: Quantity, name: str = "power") -> float:
    """Watts; `name` is what the error calls the value, for instance `--power`."""
    return parse(text, POWER, name)


def parse_area(text: Quantity, name: str = "area") -> float:
    """Square millimetres."""
    return parse(text, AREA, name)


def parse_power_density(text: Quantity, name: str = "power density") -> float:
    """Watts per square millimetre."""
    return parse(text, POWER_DENSITY, name)


def parse_size(text: Quantity, name: str = "size") -> float:
    """Bytes."""
    return parse(text, SIZE, name)


def parse_rate(text: Quantity, name: str = "rate") -> float:
    """Bytes per second."""
    return parse(text, RATE, name)


def parse_frequency(text: Quantity, name: str = "frequency") -> float:
    """Hertz."""
    return parse(text, FREQUENCY, name)


def parse_time(text: Quantity, name: str = "time") -> float:
    """Seconds; a bare number is seconds."""
    return parse(text, TIME, name)


def parse(text: Quantity, kind: Kind, name: str) -> float:
    """A finite positive quantity in the unit of `kind`, in which a number (no text) is taken to be.

    Raises InputError that names the value and says what would be right.
    """
    number, unit = _split(text) if isinstance(text, str) else (None, "")
    value = _value(number, unit, kind) if isinstance(text, str) else _number(text)
    if value is None:
        bare = number is not None and not unit
        raise _error(text, kind, name, "has no unit" if bare else f"is not {kind.article} {kind.name}")
    if not (math.isfinite(value) and value > 0):
        raise _error(text, kind, name, "must be finite and greater than zero")
    return value


def shown(value: float) -> str:
    """A number in a sentence: four significant digits, or all before the point where there are more."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"


_ABBREVIATIONS = {
    **{word: word.upper() for word in ("hbm", "tdp", "mfu", "mac", "phy", "pue", "kv", "simt")},
    "alus": "ALUs",
}


def spelled(name: str) -> str:
    """The name of a field or a figure as words, abbreviations as they are written."""
    return " ".join(_ABBREVIATIONS.get(word, word) for word in name.split("_"))


def alike(first: object, second: object) -> bool:
    """Whether two values of an option ask for the same: equal, or the same quantity in other units.

    Lists are compared item by item, `FIELD=VALUE` by field and value.
    """
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(alike, first, second))
    if isinstance(first, str) and isinstance(second, str):
        (field, _, value), (other, _, another) = first.partition("="), second.partition("=")
        if value and another:
            return field.strip() == other.strip() and alike(value, another)
    return first == second or any(_both(first, second, kind) for kind in _KINDS)


def _both(first: object, second: object, kind: Kind) -> bool:
    """Whether both are the same quantity of one kind."""
    if not all(isinstance(one, str | float | int) and not isinstance(one, bool) for one in (first, second)):
        return False
    try:
        return parse(first, kind, "") == parse(second, kind, "")  # type: ignore[arg-type] # just looked at
    except InputError:
        return False


_OF_FIELD = {"byte": SIZE, "byte/s": RATE, "Hz": FREQUENCY, "s": TIME}
"""What a field with some SI unit measures; fields with other units take plain numbers."""


def si_value(value: object, unit: str, where: str) -> float:
    """A finite number in the SI unit `unit` of a field, from `1.05e9`, `1.05GHz`, `128MiB`, `900GB/s`.

    Unlike on the command line a plain number is right too. Raises InputError that names `where`.
    """
    number = _field_number(value, unit)
    if number is None or not math.isfinite(number):
        kind = _OF_FIELD.get(unit)
        examples = f" or with a unit, for example {kind.examples}" if kind else ""
        measured = "" if unit == "1" else f" in {unit}"
        raise InputError(f"{where}: {value!r} is not a quantity; give a plain number{measured}{examples}")
    return number


def _field_number(value: object, unit: str) -> float | None:
    """The number in SI units, infinite where it is too large for a float; None where it is no quantity."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e300 else math.inf
    if not isinstance(value, str):
        return None
    number, given = _split(value)
    if number is None or not given:
        return None if number is None else float(number)
    kind = _OF_FIELD.get(unit)
    return _value(number, given, kind) if kind else None


def _number(value: object) -> float | None:
    """A number that is not a truth value as a float; None where it is none."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None


def _split(text: str) -> tuple[str | None, str]:
    """Number and unit of a text; the number is None where there is none."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    return (None, "") if match is None else (match[1], match[2] or "")


def _value(number: str | None, unit: str, kind: Kind) -> float | None:
    """The quantity in the unit of `kind`; None where it is none."""
    factor = _factor(unit, kind)
    if number is None or factor is None:
        return None
    if not math.isfinite(float(number)):
        return math.inf
    return float(Decimal(number) * factor)


def _factor(unit: str, kind: Kind) -> Decimal | None:
    """How many target units one `unit` is; none where it does not measure `kind`."""
    if not unit:
        return Decimal(1) if kind.bare_number else None
    if unit in _EXACT[kind.unit]:
        return _EXACT[kind.unit][unit]
    if not re.fullmatch(kind.spelling, unit):
        return None
    factor = _convert(_EXPONENT.sub(_power, unit), kind.unit)
    return None if factor is None else Decimal(repr(factor))


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


def _error(text: Quantity, kind: Kind, name: str, problem: str) -> InputError:
    return InputError(f"{name} {text!r} {problem}{_meant(text, kind)}; write for example {kind.examples}")


def _meant(text: Quantity, kind: Kind) -> str:
    """The same with capital and small letters of the unit as they should be, in a question; or nothing."""
    number, unit = _split(text) if isinstance(text, str) else (None, "")
    close = [known for known in _EXACT[kind.unit] if known.casefold() == unit.casefold() and known != unit]
    return f" (did you mean {number}{close[0]}?)" if number is not None and close else ""
