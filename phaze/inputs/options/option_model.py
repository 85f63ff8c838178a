"""Options of a verb, each described once: type, default, bounds, meaning.

The command line, the functions of Python, what a run directory keeps of a question, and the reference pages are derived
from them. Nothing heavy is imported: `dse --help` needs them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from typing import Any, Self


class Effect(Enum):
    """How far a change of an option can reach."""

    ANSWER = "answer"
    """To what is answered: a run goes on only under the same value."""
    REACH = "reach"
    """To how far a search gets: it may go on under another value."""
    NOTHING = "nothing"
    """To where the answer goes, who is told, who works for it."""


class Packaged(Enum):
    """Kinds of packaged files whose names a shell offers."""

    WORKLOADS = "workloads"
    ARCHS = "archs"
    SPACES = "spaces"
    NETWORKS = "networks"
    FRAMEWORKS = "frameworks"
    PLANS = "plans"
    FAILURES = "failures"
    ENGINES = "engines"


@dataclass(frozen=True)
class Option:
    """One option, as every place that has it describes it."""

    help: str
    flags: tuple[str, ...] = ()
    """As typed, where that is not `--name-with-dashes`."""
    least: float | None = None
    most: float | None = None
    metavar: str | None = None
    offers: tuple[str, ...] | Packaged = ()
    """Values that a shell offers."""
    several: bool = False
    """Whether such values are joined by commas."""
    taken: str | None = None
    """Annotation of the argument in Python, where that takes more than what the model holds."""
    meaning: str | None = None
    """Meaning in Python, where that differs from `help`."""
    effect: Effect = Effect.ANSWER
    in_python: bool = True
    """Whether the function of Python has it, too."""


def option(default: Any, help: str, *flags: str, **more: Any) -> Any:  # noqa: ANN401 - a field of any type
    """A field of an option model; `default`: `...` where a value has to be given."""
    told = {"option": Option(help, flags, **more)}
    return field(metadata=told) if default is ... else field(default=default, metadata=told)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Values of the options of one verb."""

    @classmethod
    def described(cls) -> Mapping[str, tuple[Field[Any], Option]]:
        """Every option by its name in Python, in the order of the model."""
        return {one.name: (one, one.metadata["option"]) for one in fields(cls)}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Defaults of the options by name, of those that have one."""
        return {one.name: one.default for one in fields(cls) if one.default is not MISSING}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options among some values; others are left alone, missing ones are at their defaults."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})

    @property
    def values(self) -> dict[str, Any]:
        """Every value by the name of its option."""
        return {name: getattr(self, name) for name in self.described()}

    @property
    def kept(self) -> dict[str, Any]:
        """Options that a run directory keeps: values that change the answer, or how far a search gets."""
        return self._without(Effect.NOTHING)

    @property
    def answering(self) -> dict[str, Any]:
        """Values under which alone a run goes on."""
        return self._without(Effect.NOTHING, Effect.REACH)

    def _without(self, *effects: Effect) -> dict[str, Any]:
        described = self.described()
        return {
            name: value for name, value in self.values.items() if described[name][1].effect not in effects
        }
