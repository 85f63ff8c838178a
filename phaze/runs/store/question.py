"""What a run was asked: the same question is continued, another one is refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from phaze.errors import InputError
from phaze.quantity import alike

NO_MATTER = frozenset(
    {
        "out",
        "resume",
        "json",
        "quiet",
        "plot",
        "progress",
        "storage",
        "join",
        "no_cache",
        "workers",
        "executor",
    }
)
"""Options that change no answer: where it goes, who is told, who works for it. A database has a password, too."""

FREE = NO_MATTER | {"time_limit", "trials"}
"""Options that may change from one part of a run to the next: these change only how far it gets."""


@dataclass(frozen=True)
class Question:
    """Values of a command's options by their names, and SHA-256 of the files they name."""

    options: Mapping[str, object]
    inputs: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, object], inputs: Mapping[str, str]) -> Question:
        """The question behind a command line, in the form in which it is kept."""
        asked = {name: value for name, value in options.items() if name not in FREE}
        return cls.read(json.dumps({"options": asked, "inputs": dict(inputs)}, default=str))

    @classmethod
    def read(cls, text: str) -> Question:
        """The question of a text. Raises ValueError where it is none."""
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(str(error)) from error

    @property
    def text(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self), sort_keys=True)

    def check(self, before: Question, folder: Path) -> None:
        """Raises InputError, naming the first difference, where another question was asked before."""
        for name in dict.fromkeys([*self.options, *before.options]):
            was, now = before.options.get(name), self.options.get(name)
            if not alike(was, now):
                raise InputError(
                    f"{folder} was begun {_option(name, was)}, and is to be continued {_option(name, now)}; "
                    "ask the same, or choose another --out"
                )
        for name, now in self.inputs.items():
            if before.inputs.get(name) != now:
                raise InputError(
                    f"the {name} file has changed since {folder} was begun; restore it, or choose another --out"
                )


def _option(name: str, value: object) -> str:
    """`with --power 400W`, `without --power`."""
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False or value == []:
        return f"without {option}"
    words = value if isinstance(value, list) else [] if value is True else [value]
    return " ".join(["with", option, *map(str, words)])
