"""Values of options, read into a model: checked against what Python takes, and in the one shape that models hold."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from phaze.errors import InputError
from phaze.inputs.options.option_model import Option, Options
from phaze.text_file import shortened

Model = TypeVar("Model", bound=Options)

_PLAIN: Mapping[str, Callable[[object], bool]] = {
    "None": lambda value: value is None,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: type(value).__name__ in ("bool", "bool_"),  # NumPy's, too, without loading it
    "int": lambda value: isinstance(value, Integral) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, Real) and not isinstance(value, bool),
    "Path": lambda value: isinstance(value, os.PathLike),
    # What these take beside is said by their readers, in words of their own.
    "Quantity": lambda value: isinstance(value, str | Real),
    **dict.fromkeys(("Source", "Run", "object", "Progress", "Callable"), lambda value: True),
}
_PARTS = re.compile(r"\s*\|\s*(?![^\[]*\])")
_SHOWN = 60


def read(model: type[Model], values: Mapping[str, Any]) -> Model:
    """The options among some values, the others at their defaults; what is no option of the model is left alone.

    Raises InputError for the first value that is of a wrong type, and for an option that has to be given and is not.
    """
    found = {}
    for name, (told, option) in model.described().items():
        if name in values:
            check_type(name, values[name], taken(model, name))
            found[name] = _shaped(values[name], str(told.type), option)
        elif name not in model.defaults():
            raise InputError(f"{name} is not given")
    return model.of(found)


def taken(model: type[Options], name: str) -> str:
    """Annotation of an option's argument in Python."""
    told, option = model.described()[name]
    return option.taken or str(told.type)


def check_type(name: str, value: object, annotation: object) -> None:
    """Raises InputError where a value is not what an annotation says; only annotations that are texts say something."""
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


def as_list(value: object) -> list[Any]:
    """One thing, or a sequence of them, as a list."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def _shaped(value: Any, held: str, option: Option) -> Any:  # noqa: ANN401 - a value of any option
    """A value as models hold it, whichever way it was given; nothing, however it was said, is none."""
    if option.several:
        return None if value is None else ",".join(as_list(value))
    if held.startswith("Sequence[str] | None"):
        return _pairs(value) or None
    if held.startswith("Sequence["):
        return as_list(value)
    return Path(value) if held == "Path | None" and value is not None else value


def _pairs(value: Mapping[str, object] | Sequence[str] | str | None) -> list[str]:
    """`{"tensor_cores": 8}`, `["tensor_cores=8"]` or `"tensor_cores=8"` as a list of texts."""
    if value is None:
        return []
    return [f"{k}={v}" for k, v in value.items()] if isinstance(value, Mapping) else as_list(value)
