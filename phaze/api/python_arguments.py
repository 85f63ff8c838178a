"""Arguments of Python's functions: checked against their annotations, and turned into the words of the command line,
which all rooms below speak, and back.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from phaze.errors import InfeasibleError, InputError, PhazeError
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


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)")
_VERB = re.compile(r"\bdse (run|evaluate|compare|sweep|validate|plan)\b")


def verb_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a function as values of the options of its verb, by the same names."""
    return {name: _SHAPES[name](value) if name in _SHAPES else value for name, value in given.items()}


def as_list(value: object) -> list[Any]:
    """One thing, or a sequence of them, as a list."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def in_python(text: str) -> str:
    """A sentence about options and verbs as one about arguments and functions."""
    text = _OPTION.sub(lambda found: found[1].replace("-", "_"), text)
    return _VERB.sub(lambda found: "phaze." + found[1].replace("run", "explore"), text)


def speaks_python(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The same function, with errors that name its arguments, those of a wrong type among them."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def speaking(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        try:
            check_types(signature, signature.bind(*arguments, **named).arguments)
            return function(*arguments, **named)
        except PhazeError as error:
            _reword(error)
            raise

    return speaking


def _reword(error: PhazeError) -> None:
    error.args = (in_python(str(error)),)
    if isinstance(error, InfeasibleError):
        error.shortfalls = tuple(
            replace(short, levers=tuple(map(in_python, short.levers))) for short in error.shortfalls
        )


def _pairs(value: Mapping[str, object] | Sequence[str] | str | None) -> list[str]:
    """`{"tensor_cores": 8}`, `["tensor_cores=8"]` or `"tensor_cores=8"` as a list of texts."""
    if value is None:
        return []
    return [f"{k}={v}" for k, v in value.items()] if isinstance(value, Mapping) else as_list(value)


def _commas(value: Sequence[str] | str | None) -> str | None:
    """Names as one text with commas."""
    return None if value is None else ",".join(as_list(value))


_SHAPES: Mapping[str, Callable[[Any], object]] = {
    "workload": as_list,
    "fix": _pairs,
    "bind": _pairs,
    "weight": _pairs,
    "axes": _commas,
    "objectives": _commas,
}
