"""Options as texts, the way a form has them: read into the values of a model, and written as words of a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from phaze.errors import InputError
from phaze.inputs.option_reading import read
from phaze.inputs.options.option_model import Option, Options

Model = TypeVar("Model", bound=Options)

ON = "on"
"""The text of an option that is a switch."""


def read_texts(model: type[Model], texts: Mapping[str, str]) -> Model:
    """The options among some texts; empty ones are at their defaults.

    Raises InputError for the first text that is no value of its option, and for an option that has to be given.
    """
    described = model.described()
    values = {
        name: _value(flag(name, option), str(told.type), option, text.strip())
        for name, (told, option) in described.items()
        if (text := texts.get(name, "")).strip()
    }
    for name in described.keys() - model.defaults().keys() - values.keys():
        raise InputError(f"{flag(name, described[name][1])} is not given")
    return read(model, values)


def words(model: type[Options], texts: Mapping[str, str]) -> list[str]:
    """The same as words of a command line, in the order of the model."""
    found: list[str] = []
    for name, (told, option) in model.described().items():
        if text := texts.get(name, "").strip():
            found += _words(flag(name, option), str(told.type), text)
    return found


def flag(name: str, option: Option) -> str:
    """How an option is called on the command line."""
    long = next((one for one in option.flags if one.startswith("--")), f"--{name.replace('_', '-')}")
    return long.partition("/")[0]


def _words(called: str, kind: str, text: str) -> Iterator[str]:
    if kind.startswith("bool"):
        yield from [called] if text == ON else []
    elif kind.startswith("Sequence["):
        for one in text.split():
            yield from (called, one)
    else:
        yield from (called, text)


def _value(called: str, kind: str, option: Option, text: str) -> Any:  # noqa: ANN401 - a value of any option
    """A text as the model holds it. Raises InputError where it is none."""
    if kind.startswith("bool"):
        return text == ON
    if kind.startswith("Sequence["):
        return text.split()
    plain = kind.partition(" | ")[0]
    if plain not in ("int", "float"):
        return text
    number: float
    try:
        number = int(text) if plain == "int" else float(text)
    except ValueError as error:
        what = "a whole number" if plain == "int" else "a number"
        raise InputError(f"{called} {text!r} is not {what}") from error
    if not (option.least is None or number >= option.least) or not (
        option.most is None or number <= option.most
    ):
        limits = [f"at least {option.least:g}"] if option.least is not None else []
        limits += [f"at most {option.most:g}"] if option.most is not None else []
        raise InputError(f"{called} {text} must be {' and '.join(limits)}")
    return number
