"""Typer applications whose `--help` is a manual page."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _Manual:
    """Common part of commands and groups: their help, and what they say of a word that belongs to no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Read the command line; a group without verb shows its page. Raises InputError for a lone word."""
        if not args and not getattr(self, "invoke_without_command", True) and not ctx.resilient_parsing:
            from phaze.cli.manual.manual_page import page

            typer.echo(page(self, ctx.command_path), nl=False)
            ctx.exit()
        if args and not args[0].startswith("-") and not ctx.resilient_parsing:
            _check_lone_word(self, ctx.command_path, args[0])
        read: list[str] = super().parse_args(ctx, args)  # type: ignore[misc] # of typer, beside this one
        return read

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's click is vendored
        """Run what was typed. Raises InterruptedRunError after Ctrl-C, of which typer would say nothing."""
        from phaze.cli.interruption import InterruptedRunError

        try:
            return super().invoke(ctx)  # type: ignore[misc] # of typer, beside this one
        except KeyboardInterrupt as error:
            raise InterruptedRunError("interrupted") from error

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's click is vendored
        """Write the page of this command."""
        from phaze.cli.manual.manual_page import page

        formatter.write(page(self, ctx.command_path))


class Command(_Manual, TyperCommand):
    """A verb. No option of it takes what is no finite number, whether it is used or not."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Run the verb. Raises InputError."""
        from phaze.errors import InputError

        for name, value in ctx.params.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"--{name.replace('_', '-')} {value} is not a finite number")
        return super().invoke(ctx)


class Group(_Manual, TyperGroup):
    """A noun with verbs of its own, or the whole."""


def _check_lone_word(command: Any, path: str, word: str) -> None:  # noqa: ANN401
    """Raises InputError for a first word that is neither a verb nor an argument, with what was probably meant."""
    from phaze.errors import InputError

    verbs = getattr(command, "commands", {})
    options = {one.name for one in command.params}
    if word in verbs or any(one.param_type_name == "argument" for one in command.params):
        return
    if meant := _meant(word, options, verbs):
        below = f" ({path} also has verbs of its own: {', '.join(verbs)})" if verbs and "--" in meant else ""
        raise InputError(f"{path} takes no word {word!r} alone; write {path} {meant}{below}")


def _meant(word: str, options: set[str], verbs: Mapping[str, Any]) -> str | None:
    """How the word would be given: by an option of a question, or to the verb that shows it; none where neither is."""
    if difflib.get_close_matches(word, verbs, n=1):
        return None
    if "arch" in options and ("workload" not in options or _is_chip(word)):
        return f"--arch {word}"
    if "workload" in options:
        return f"--workload {word}"
    return f"show {word}" if "show" in verbs else None


def _is_chip(word: str) -> bool:
    """Whether a packaged chip has that name, or a run is kept there."""
    from phaze.hardware.catalogue import Catalogue, packaged

    return word in packaged(Catalogue.ARCHITECTURE) or (Path(word) / "architecture.yaml").is_file()


class App(typer.Typer):
    """A typer application of such commands."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - those of typer
        super().__init__(cls=Group, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:  # noqa: ANN401
        """Register a function as a command, as typer does."""
        return super().command(name, cls=Command, **settings)
