"""`dse measure`: tables for a user's own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli.manual.typer_app import App
from phaze.cli.shell_completion import one_of

app = App(name="measure", help="Write tables for measurements of your own.")


@app.callback()
def _measure() -> None:
    """Hold what the noun has."""


@app.command()
def template(
    what: Annotated[
        str,
        typer.Argument(
            help="gemm (products, for dse calibrate) or collective (for dse networks fit).",
            autocompletion=one_of("gemm", "collective"),
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="File to write (default: stdout).")] = None,
) -> None:
    """Write a table with documented columns and example rows, to fill in with measurements.

    Examples:
        dse measure template gemm --out products.csv
        dse measure template collective

    See also: dse calibrate; dse networks fit.
    """
    from phaze.inputs.named_choices import choose
    from phaze.runs.atomic_files import check_writable, write_atomically
    from phaze.validation.measured.own_measurements import Template, template_text

    text = template_text(choose(Template, what, "WHAT"))
    if out is None:
        typer.echo(text, nl=False)
        return
    check_writable(out)
    write_atomically(out, text)
