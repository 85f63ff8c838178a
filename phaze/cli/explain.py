"""`dse explain FIELD`: what a name means, in which unit, and where its number comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from phaze.cli import options as opt


def command(
    field: Annotated[str, typer.Argument(help="Hardware field, result field or word.", metavar="FIELD")],
    json: opt.Json = False,
) -> None:
    """Explain a field or a word: meaning, unit, default, source.

    Example: dse explain tdp
    """
    from dataclasses import asdict

    from phaze.cli.output import nearest, print_json
    from phaze.errors import InputError
    from phaze.report.glossary import entries, explain

    found = explain(field)
    if not found:
        names = {entry.name for entry in entries()}
        raise InputError(
            f"nothing is called {field!r}{nearest(field.lower().replace('-', '_'), sorted(names))}"
        )
    if json:
        print_json([asdict(entry) for entry in found])
        return
    for entry in found:
        typer.secho(f"{entry.name} ({entry.kind})", bold=True)
        _echo(entry.text)
        for label, text in (("unit", entry.unit), ("default", entry.default), ("source", entry.source)):
            if text:
                _echo(f"{label}: {text}")


def _echo(text: str) -> None:
    from textwrap import fill

    typer.echo(fill(text, 80, initial_indent="  ", subsequent_indent="  ", break_long_words=False))
