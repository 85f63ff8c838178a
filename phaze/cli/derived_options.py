"""Commands that are given the options of a model: what Typer sees is derived from the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field
from inspect import Parameter, Signature, get_annotations
from pathlib import Path
from typing import Annotated, Any

import typer

from phaze.cli import shell_completion as known
from phaze.inputs.options.option_model import Option, Options, Packaged

_TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "Path": Path,
    "Quantity": str,
}
"""Types of values on the command line by the first alternative of an annotation."""

_PACKAGED: dict[Packaged, known.Completer] = {
    Packaged.WORKLOADS: known.workloads,
    Packaged.ARCHS: known.archs,
    Packaged.SPACES: known.spaces,
    Packaged.NETWORKS: known.networks,
    Packaged.FRAMEWORKS: known.frameworks,
    Packaged.PLANS: known.plans,
    Packaged.FAILURES: known.failures,
    Packaged.ENGINES: known.engines,
}


def takes(
    model: type[Options], *, may_lack: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the command has an option for every field of a model, and is called with the model first.

    `may_lack`: fields that may be missing on a command line though they have no default; none stands for them. What
    else the command takes stays as it is.
    """
    names = model.described().keys()

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def shown(**given: Any) -> None:  # noqa: ANN401 - values of any option
            beside = {name: value for name, value in given.items() if name not in names}
            command(model.of(given), **beside)

        parameters = [*_parameters(model, may_lack), *_beside(command)]
        shown.__name__, shown.__doc__, shown.__module__ = (
            command.__name__,
            command.__doc__,
            command.__module__,
        )
        shown.__annotations__ = {one.name: one.annotation for one in parameters}
        shown.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # that is where Python looks
        return shown

    return decorate


def _parameters(model: type[Options], may_lack: Sequence[str]) -> Iterator[Parameter]:
    for name, (told, option) in model.described().items():
        kind, default = _typed(str(told.type)), _default(told)
        if name in may_lack:
            kind, default = kind | None, None
        annotation = Annotated[kind, _described(option)]  # type: ignore[valid-type] # known when it runs
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _beside(command: Callable[..., None]) -> Iterator[Parameter]:
    """Parameters of a command after its model, by keyword."""
    from inspect import signature

    annotations = get_annotations(command, eval_str=True)
    for one in list(signature(command).parameters.values())[1:]:
        yield one.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotations[one.name])


def _default(told: Field[Any]) -> Any:  # noqa: ANN401
    return Parameter.empty if told.default is MISSING else told.default


def _typed(annotation: str) -> Any:  # noqa: ANN401 - a type, or a union of two
    """The type that Typer reads a value as."""
    if annotation.startswith("Sequence["):
        kind: Any = list[str]
    else:
        kind = _TYPES[annotation.partition(" | ")[0]]
    return kind | None if annotation.endswith(" | None") else kind


def _described(option: Option) -> Any:  # noqa: ANN401 - Typer's
    return typer.Option(
        *option.flags,
        help=option.help,
        min=option.least,
        max=option.most,
        metavar=option.metavar,
        autocompletion=_completer(option),
    )


def _completer(option: Option) -> known.Completer | None:
    if isinstance(option.offers, Packaged):
        return _PACKAGED[option.offers]
    if not option.offers:
        return None
    return known.several_of(*option.offers) if option.several else known.one_of(*option.offers)
