"""Numbers as a person reads them: three significant digits and a unit that fits.

Rates and times take decimal prefixes, memory sizes binary ones, as everywhere in this project.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from phaze.quantity import spelled

_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_COUNTS = ("", "k", "M", "B", "T")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES = ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns"))
# Longest suffix first: `_bytes_per_s` also ends in `_s`.
_SUFFIXES = (
    ("_per_s_per_w", "/s per W"),
    ("_bytes_per_s", "B/s"),
    ("_samples_per_s", "samples/s"),
    ("_flop_per_s", "FLOP/s"),
    ("_per_s", "/s"),
    ("_bytes", "bytes"),
    ("_mm2", "mm2"),
    ("_hz", "Hz"),
    ("_w", "W"),
    ("_j", "J"),
    ("_s", "s"),
)


def number(value: float, digits: int = 3) -> str:
    """`digits` significant digits, without an exponent between 1e-3 and 1e7."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    magnitude = math.floor(math.log10(abs(value)))
    if not -3 <= magnitude < 7:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def decimal(value: float, unit: str) -> str:
    """For instance 1.05 GHz, 300 GB/s, 12.3 kJ."""
    value, prefix = _thousands(value, _DECIMAL)
    return f"{number(value)} {prefix}{unit}"


def count(value: int) -> str:
    """For instance 6.74 B: millions, billions (10^9) and trillions, as of parameters."""
    scaled, word = _thousands(value, _COUNTS)
    return f"{number(scaled)} {word}".rstrip()


def _thousands(value: float, words: Sequence[str]) -> tuple[float, str]:
    """The value in thousands of thousands, and the word for it."""
    step = 0
    while abs(value) >= 999.5 and step < len(words) - 1:
        value, step = value / 1000, step + 1
    return value, words[step]


def memory(size_bytes: float) -> str:
    """For instance 73.2 GiB."""
    step = 0
    while abs(size_bytes) >= 1023.5 and step < len(_BINARY) - 1:
        size_bytes, step = size_bytes / 1024, step + 1
    return f"{number(size_bytes)} {_BINARY[step]}"


def duration(seconds: float) -> str:
    """For instance 3.42 ms or 17.3 s; minutes and hours for waiting times stay seconds."""
    factor, unit = time_unit(seconds)
    return f"{number(seconds * factor)} {unit}" if seconds else "0 s"


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit a time reads well in, and how many of it are one second: (1e3, "ms") for 3.42e-3."""
    return next((factor, unit) for factor, unit in _TIMES if abs(seconds) * factor >= 0.9995 or unit == "ns")


def percent(share: float) -> str:
    """For instance 38.1 %."""
    return f"{100 * share:.1f} %"


def unit_of(name: str) -> str:
    """The unit a field name ends in, empty where it carries none."""
    return next((unit for suffix, unit in _SUFFIXES if name.endswith(suffix)), "")


def field(name: str, value: object) -> str:
    """A value under the unit its field name carries: `field("clock_hz", 1.05e9)` is "1.05 GHz"."""
    unit = unit_of(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if unit == "bytes":
        return memory(value)
    if unit == "s":
        return duration(value)
    if unit == "mm2":
        return f"{number(value)} mm2"
    if unit:
        return decimal(value, unit)
    whole = count if name.endswith("parameters") else "{:,}".format
    return whole(value) if isinstance(value, int) else number(value)


def label(name: str) -> str:
    """A field name as words: without its unit, without underscores, abbreviations in capitals."""
    suffix = next((suffix for suffix, _ in _SUFFIXES if name.endswith(suffix)), "")
    return spelled(name.removesuffix(suffix))


def signed(value: float, digits: int) -> str:
    """With its sign, unless it rounds to zero."""
    told = f"{value:+.{digits}f}"
    return told[1:] if float(told) == 0 else told


def gain(share: float) -> str:
    """For instance +38.1 %, -2.0 % or 0.0 %."""
    return f"{signed(100 * share, 1)} %"


def regret(share: float) -> str:
    """What is lost against the best of a workload alone; none where a search that was cut short found a worse one."""
    return percent(share) if share >= 0 else "none"
