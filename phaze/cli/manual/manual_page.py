"""The manual page of a command, from what it knows of itself: its text taken apart, its options by group, its exit
codes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import typer

from phaze.cli.manual.option_groups import grouped

EXITS: Mapping[int, str] = {
    0: "answered",
    1: "an internal error",
    2: "bad input",
    3: "infeasible: nothing fits",
    4: "time over without any answer",
    5: "a check failed",
    130: "interrupted",
}
"""Every exit code of `dse`."""

ALWAYS = (0, 2, 130)
"""Codes that every verb may end with, besides 1; a verb's text names the others."""


def exit_sentence(codes: tuple[int, ...]) -> str:
    """The codes of a verb with their meanings, in one line."""
    return "; ".join(f"{code} {EXITS[code]}" for code in sorted({*ALWAYS, *codes}))


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


Rows = list[tuple[str, str]]
_MOST, _LEAST = 80, 40
_TERMS = 28  # columns for names; what is longer has a line of its own


def page(command: Any, path: str) -> str:  # noqa: ANN401 - typer's click is vendored, its types too
    """Usage, what it does, its arguments, options and commands by group, examples, exit codes, where else to look."""
    width = max(_LEAST, min(_MOST, shutil.get_terminal_size((_MOST, 24)).columns))
    words = wording(command.help or "")
    children = children_of(command)
    parts = [_wrapped(usage(command, path), width, indent=7, first="Usage: ")]
    parts += [_wrapped(paragraph, width) for paragraph in words.told]
    rows = [(heading, list(map(_command_row, found))) for heading, found in by_panel(children)]
    parts += [_block(heading, found, width) for heading, found in [*rows, *_parameters(command)] if found]
    if words.examples:
        parts.append("\n".join([_head("Examples"), *(_example(line, width) for line in words.examples)]))
    if words.exits or not children:
        parts.append(_wrapped(f"{exit_sentence(words.exits)}.", width, indent=2, first="Exit codes: "))
    if words.see:
        parts.append(_wrapped(words.see, width, indent=2, first="See also: "))
    return "\n\n".join(parts) + "\n"


def usage(command: Any, path: str) -> str:  # noqa: ANN401
    """The command line in short: required options, arguments, the rest as a word."""
    options = [p for p in command.params if p.param_type_name == "option"]
    required = [f"{p.opts[0]} {metavar(p)}" for p in options if p.required]
    arguments = [argument(p) for p in command.params if p.param_type_name == "argument"]
    words = [path, *required, *arguments, "[OPTIONS]"]
    return " ".join([*words, "[COMMAND]"] if children_of(command) else words)


def metavar(parameter: Any) -> str:  # noqa: ANN401
    """Placeholder of the value of a parameter."""
    return str(parameter.metavar or parameter.name.rpartition("_")[2].upper())


def argument(parameter: Any) -> str:  # noqa: ANN401
    """An argument in a usage line, in brackets where it may be left out."""
    name = metavar(parameter)
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def children_of(command: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """Commands below one, without those that are other names."""
    return {name: child for name, child in getattr(command, "commands", {}).items() if not child.hidden}


def by_panel(children: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Commands by their group, in the order in which they were added."""
    found: dict[str, list[Any]] = {}
    for child in children.values():
        panel = getattr(child, "rich_help_panel", None)
        found.setdefault(panel if isinstance(panel, str) else "Commands", []).append(child)
    yield from found.items()


def default(option: Any) -> str:  # noqa: ANN401
    """The default of an option as it is typed; nothing where there is none."""
    if option.required or option.default is None or option.is_flag or callable(option.default):
        return ""
    value = getattr(option.default, "value", option.default)
    return f"{value:g}" if isinstance(value, float) else str(value)


def names(option: Any) -> str:  # noqa: ANN401
    """An option as it is typed: the short name first, with what stands for its value."""
    short_first = sorted(option.opts, key=len)
    told = ", ".join(short_first) + "".join(f" / {other}" for other in option.secondary_opts)
    return told if option.is_flag else f"{told} {metavar(option)}"


def _parameters(command: Any) -> Iterator[tuple[str, Rows]]:  # noqa: ANN401
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    yield "Arguments", [(metavar(p).strip("[]."), p.help or "") for p in arguments]
    options = {p.name: p for p in command.params if p.param_type_name == "option" and not p.hidden}
    for heading, found in grouped(options):
        yield heading, list(map(_option_row, found))
    yield "Help", [("-h, --help", "Show this page.")]


def _option_row(option: Any) -> tuple[str, str]:  # noqa: ANN401
    remark = (
        " (required)." if option.required else f" (default: {default(option)})." if default(option) else ""
    )
    told = option.help or ""
    return names(option), told.rstrip(".") + remark if remark else told


def _command_row(command: Any) -> tuple[str, str]:  # noqa: ANN401
    return command.name, wording(command.help or "").told[0]


def _wrapped(text: str, width: int, *, indent: int = 0, first: str = "") -> str:
    return "\n".join(wrap(f"{first}{text}", width, subsequent_indent=" " * indent, break_on_hyphens=False))


def _example(line: str, width: int) -> str:
    r"""A command line that may be pasted: broken with `\` where it is longer than the page."""
    words = wrap(
        f"  {line}", width - 2, subsequent_indent=" " * 6, break_on_hyphens=False, break_long_words=False
    )
    return " \\\n".join(words)


def _head(heading: str) -> str:
    """A heading, bold where a terminal shows it."""
    return typer.style(f"{heading}:", bold=True)


def _block(heading: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    return "\n".join([_head(heading), *(line for row in rows for line in _row(*row, width))])


def _row(term: str, meaning: str, width: int) -> list[str]:
    """A term and, beside it or below, what it means."""
    column = min(_TERMS, width * 7 // 20)
    told = [" " * column + line for line in wrap(meaning, width - column, break_on_hyphens=False)]
    beside = wrap(term, width, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
    if told and len(beside) == 1 and len(beside[0]) < column - 1:
        return [beside[0].ljust(column) + told[0][column:], *told[1:]]
    return [*beside, *told]
