"""The text of a verb taken apart: what it does, its examples, its exit codes, where else to look."""

from __future__ import annotations

from dataclasses import dataclass

_EXAMPLES, _EXITS, _SEE = "Examples:", "Exit codes:", "See also:"


@dataclass(frozen=True, slots=True)
class Wording:
    """`told`: paragraphs; `examples`: command lines; `exits`: codes beyond those of every verb; `see`: other verbs."""

    told: tuple[str, ...]
    examples: tuple[str, ...] = ()
    exits: tuple[int, ...] = ()
    see: str = ""


def wording(help_text: str) -> Wording:
    """The parts of a docstring, its paragraphs separated by empty lines."""
    told: list[str] = []
    examples: tuple[str, ...] = ()
    exits: tuple[int, ...] = ()
    see = ""
    for paragraph in help_text.strip().split("\n\n"):
        words = " ".join(paragraph.split())
        if words.startswith(_EXAMPLES):
            examples = tuple(line.strip() for line in paragraph.splitlines()[1:])
        elif words.startswith(_EXITS):
            exits = tuple(int(code) for code in words.removeprefix(_EXITS).rstrip(".").split(","))
        elif words.startswith(_SEE):
            see = words.removeprefix(_SEE).strip()
        else:
            told.append(words)
    return Wording(tuple(told), examples, exits, see)
