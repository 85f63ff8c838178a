"""Arguments of Python's functions against their annotations: a value of the wrong type ends in one sentence.

Annotations are read as they are written, so that nothing they name has to be imported: classes count by their names.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from phaze.errors import InputError
from phaze.text_file import shortened

_PLAIN: Mapping[str, Callable[[object], bool]] = {
    "None": lambda value: value is None,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: type(value).__name__ in ("bool", "bool_"),  # NumPy's, too, without loading it
    "int": lambda value: isinstance(value, Integral) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, Real) and not isinstance(value, bool),
    "Path": lambda value: isinstance(value, os.PathLike),
    # What these take beside is said by their readers, in words of their own.
    "Quantity": lambda value: isinstance(value, str | Real),
    **dict.fromkeys(("Source", "object", "Progress", "Callable"), lambda value: True),
}
_PARTS = re.compile(r"\s*\|\s*(?![^\[]*\])")
_SHOWN = 60


def check_types(signature: inspect.Signature, arguments: Mapping[str, object]) -> None:
    """Raises InputError for the first argument that is not what its annotation says."""
    for name, value in arguments.items():
        annotation = signature.parameters[name].annotation
        if isinstance(annotation, str) and not is_of(value, annotation):
            shown = shortened(repr(value), _SHOWN)
            raise InputError(f"{name} is {shown}, of type {type(value).__name__}; it takes {annotation}")


def is_of(value: object, annotation: str) -> bool:
    """Whether a value is of a type that is written as text: unions, sequences, mappings, plain types and classes."""
    return any(_is_one(value, part) for part in _PARTS.split(annotation))


def _is_one(value: object, part: str) -> bool:
    word, _, inner = part.partition("[")
    if word == "Sequence":
        one = inner.removesuffix("]")
        return isinstance(value, Sequence) and all(isinstance(v, str) or is_of(v, one) for v in value)
    if word == "Mapping":
        kind = inner.removesuffix("]").partition(", ")[2]
        return isinstance(value, Mapping) and all(
            isinstance(k, str) and is_of(v, kind) for k, v in value.items()
        )
    known: Any = _PLAIN.get(word)
    return known(value) if known else word in {kind.__name__ for kind in type(value).__mro__}
