"""Functions of Python for the verbs: arguments from the models of options, and errors that speak of them."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, replace
from inspect import Parameter
from typing import Any, ParamSpec, TypeVar

from phaze.errors import InfeasibleError, PhazeError
from phaze.inputs.option_reading import check_type, read, taken
from phaze.inputs.options.option_model import Options

Arguments = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Arguments of a function by name, and the same as options hold them."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)")
_VERB = re.compile(
    r"\bdse (run --serve|run|evaluate|compare|sweep|validate|calibrate|plan serving|plan pools|plan|whatif failures|"
    r"whatif bubbles|whatif colocate|whatif|certify|explain|pareto|report|trace|diff|replay|graph|archs export|archs|"
    r"workloads|networks choose|networks cost|networks fit|networks|spaces|frameworks|plans|measure template|"
    r"measure serving|solve schedule|solve placement|solve fleet|solve layers|"
    r"solve instances|solve hosts)\b"
    r"(?! (?:show|new|export)\b)"
)


def in_python(text: str) -> str:
    """A sentence about options and verbs as one about arguments and functions."""
    text = _VERB.sub(lambda found: "phaze." + _function(found[1]), text)
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


def _function(verb: str) -> str:
    return {"run": "explore", "run --serve": "explore_service"}.get(verb, verb.replace(" ", "_"))


def speaks_python(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The same function, with errors that name its arguments, those of a wrong type among them."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def speaking(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        with _reworded():
            for name, value in signature.bind(*arguments, **named).arguments.items():
                check_type(name, value, signature.parameters[name].annotation)
            return function(*arguments, **named)

    return speaking


def with_arguments(
    model: type[Options],
    verb: Callable[..., _Result],
    named: Arguments = dict,
    wanted: Callable[[str], bool] | None = None,
) -> Callable[..., _Result]:
    """A function of Python with an argument for every option of a model; the `verb` is called with the model first.

    What else the verb takes stays as it is, by name. `named`: the arguments with what options hold in the place of
    objects that Python has at hand. `wanted`: which options it takes (default: those that are of Python).
    """
    signature = _signature(model, verb, wanted)

    def speaking(*arguments: Any, **by_name: Any) -> _Result:  # noqa: ANN401 - values of any option
        with _reworded():
            given = named(signature.bind(*arguments, **by_name).arguments)
            beside = {name: value for name, value in given.items() if name not in model.described()}
            return verb(read(model, given), **beside)

    speaking.__module__, speaking.__name__, speaking.__qualname__ = "phaze.api", verb.__name__, verb.__name__
    speaking.__doc__ = _documented(verb, signature, model)
    speaking.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    speaking.__annotations__["return"] = signature.return_annotation
    speaking.__signature__ = signature  # type: ignore[attr-defined] # that is where Python looks
    return speaking


def meaning(model: type[Options], name: str) -> str:
    """Meaning of an argument of Python: as the model says, or of an argument beside it."""
    if name not in model.described():
        return _BESIDE[name]
    _, option = model.described()[name]
    return in_python(option.meaning or option.help)


_BESIDE = {"progress": "Is told what is done."}


def _signature(
    model: type[Options], verb: Callable[..., object], wanted: Callable[[str], bool] | None
) -> inspect.Signature:
    """Signature of a verb: required arguments first, by position or name; the rest by name."""
    own, described = inspect.signature(verb), model.described()
    arguments = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=told.default, annotation=taken(model, name))
        for name, (told, option) in described.items()
        if (option.in_python if wanted is None else wanted(name))
    ]
    needed = [
        one.replace(kind=Parameter.POSITIONAL_OR_KEYWORD, default=Parameter.empty)
        for one in arguments
        if one.default is MISSING
    ]
    others = [one for one in arguments if one.default is not MISSING]
    beside = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in list(own.parameters.values())[1:]]
    return own.replace(parameters=[*needed, *others, *beside])


def _documented(verb: Callable[..., object], signature: inspect.Signature, model: type[Options]) -> str:
    """The docstring of a verb, and after it what every argument means."""
    lines = [f"    {name}: {meaning(model, name)}" for name in signature.parameters]
    return "\n".join([inspect.getdoc(verb) or "", "", "Arguments:", *lines])


@contextmanager
def _reworded() -> Iterator[None]:
    """Errors on the way out speak of arguments and functions."""
    try:
        yield
    except PhazeError as error:
        _reword(error)
        raise


def _reword(error: PhazeError) -> None:
    error.args = (in_python(str(error)),)
    if isinstance(error, InfeasibleError):
        error.shortfalls = tuple(
            replace(short, levers=tuple(map(in_python, short.levers))) for short in error.shortfalls
        )
