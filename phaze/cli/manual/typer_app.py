"""Typer applications whose `--help` is a manual page."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _Manual:
    """Common part of commands and groups: their help."""

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


class App(typer.Typer):
    """A typer application of such commands."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - those of typer
        super().__init__(cls=Group, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:  # noqa: ANN401
        """Register a function as a command, as typer does."""
        return super().command(name, cls=Command, **settings)
