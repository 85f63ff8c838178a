"""Words out of a list of known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from phaze.errors import InputError

_Choice = TypeVar("_Choice", bound=StrEnum)


def choose(kind: type[_Choice], text: str, name: str) -> _Choice:
    """The member of an enum with that value; InputError lists the values there are."""
    values = [member.value for member in kind]
    if text not in values:
        raise InputError(
            f"{name} {text!r} is not known{nearest(text, values)}; choose one of {', '.join(values)}"
        )
    return kind(text)


def nearest(text: str, names: Iterable[str]) -> str:
    """` (did you mean a, b?)` for the names closest to `text`, or nothing."""
    close = difflib.get_close_matches(text, list(names), n=3, cutoff=0.5)
    return f" (did you mean {', '.join(close)}?)" if close else ""
