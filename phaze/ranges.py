"""Ranges of numbers and names: types for the schemas of files and documents, which alone say what may stand there."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, Field

_LONGEST_NAME = 200
NOISE = 1e-12
"""Relative; sums of some thousand rounded terms that should be equal differ by less."""
_NOISE = 1e-9  # in the figures' own units, of differences of such sums


def _one_line(text: str) -> str:
    if len(text) > _LONGEST_NAME or not text.isprintable():
        msg = f"must be one line of at most {_LONGEST_NAME} printable characters, found {ascii(text)[:60]}"
        raise ValueError(msg)
    return text


def _at_least_0(value: float) -> float:
    """A figure that was worked out: what is below 0 by rounding alone is 0."""
    if not -_NOISE <= value < math.inf:
        msg = f"must be finite and 0 or more, found {value!r}"
        raise ValueError(msg)
    return max(value, 0.0)


def _above_0(value: float) -> float:
    """A figure of something that takes or does something."""
    if not 0 < value < math.inf:
        msg = f"must be finite and above 0, found {value!r}"
        raise ValueError(msg)
    return value


def _at_most_1(value: float) -> float:
    """A share that was worked out: what is beside 0 to 1 by rounding alone is its end."""
    if not -_NOISE <= value <= 1 + _NOISE:
        msg = f"must be from 0 to 1, found {value!r}"
        raise ValueError(msg)
    return min(max(value, 0.0), 1.0)


Line = Annotated[str, AfterValidator(_one_line)]
"""A name: it may stand in a heading, a comment or a file of another format."""

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A part of a whole."""

Portion = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
"""A part of a whole that is not nothing."""

Factor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
"""How many times something is done, kept or paid for."""

Stretch = Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)]
"""How many times longer or more something is than what is physically least."""

Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
"""A time of a machine: no more than some days."""

Bytes = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
"""An amount of memory."""

BytesOfNumber = Annotated[float, Field(ge=0, le=64, allow_inf_nan=False)]
"""What one parameter or gradient takes, with all that is kept for it."""

Positive = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
"""A size, a rate or a power that something has."""

Members = Annotated[int, Field(ge=1, le=10**9)]
"""A number of devices."""

Figure = Annotated[float, AfterValidator(_at_least_0)]
"""A time, an energy, a power or an amount of memory that the model worked out: negative, it is a fault of the model."""

Worked = Annotated[float, AfterValidator(_above_0)]
"""A time, a rate, an area or a power that the model worked out of something that is there."""

Counted = Annotated[int, AfterValidator(_above_0)]
"""How many devices or samples something was worked out for."""

WorkedOutShare = Annotated[float, AfterValidator(_at_most_1)]
"""A share that the model worked out, such as MFU: above 1, it is a fault of the model."""
