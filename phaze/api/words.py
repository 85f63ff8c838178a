"""Between Python's words and those of the command line, which all rooms below speak."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from phaze.api.typed import check_types
from phaze.errors import InfeasibleError, PhazeError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)")
_VERB = re.compile(r"\bdse (run|evaluate|compare|sweep|validate|plan)\b")


def options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a function as values of the options of its verb, by the same names."""
    return {name: _SHAPES[name](value) if name in _SHAPES else value for name, value in given.items()}


def several(value: object) -> list[Any]:
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
    return [f"{k}={v}" for k, v in value.items()] if isinstance(value, Mapping) else several(value)


def _commas(value: Sequence[str] | str | None) -> str | None:
    """Names as one text with commas."""
    return None if value is None else ",".join(several(value))


_SHAPES: Mapping[str, Callable[[Any], object]] = {
    "workload": several,
    "fix": _pairs,
    "bind": _pairs,
    "weight": _pairs,
    "axes": _commas,
    "objectives": _commas,
}
