"""`dse measure`: tables for a user's own measurements, and served models against the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.manual.typer_app import App
from phaze.cli.shell_completion import archs, networks, one_of

app = App(
    name="measure", help="Write tables for your own measurements, or compare served models with the model."
)


@app.callback()
def _measure() -> None:
    """Hold what the noun has."""


@app.command()
def template(
    what: Annotated[
        str,
        typer.Argument(
            help="gemm (products, for dse calibrate), collective (for dse networks fit) or serving (for dse measure "
            "serving).",
            autocompletion=one_of("gemm", "collective", "serving"),
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="File to write (default: stdout).")] = None,
) -> None:
    """Write a table with documented columns and example rows, to fill in with measurements.

    Examples:
        dse measure template gemm --out products.csv
        dse measure template collective

    See also: dse calibrate; dse networks fit; dse measure serving.
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


@app.command()
def serving(
    file: Annotated[Path, typer.Argument(help="Table, as dse measure template serving.", metavar="FILE")],
    arch: Annotated[
        str, typer.Option("--arch", "-a", help="The chip: built-in name or YAML file.", autocompletion=archs)
    ],
    network: Annotated[
        str, typer.Option(help="Built-in network or YAML file.", autocompletion=networks)
    ] = "default",
    rung: Annotated[
        str, typer.Option(help="Rung: analytic, calibrated.", autocompletion=one_of("analytic", "calibrated"))
    ] = "analytic",
    json: opt.Json = False,
) -> None:
    """Compare measured times per output token with the model, and find the host time per kernel that explains them.

    That time is what --dispatch of dse plan serving takes. The error with it is that of rows which were left out.

    Examples:
        dse measure serving served.csv --arch h100 --rung calibrated
        dse measure serving served.csv --arch mychip.yaml --network pod.yaml --json

    See also: dse measure template serving.
    """
    from phaze.api.measured_verbs import served_fit, served_rows, serving_sentences
    from phaze.cli.console_output import print_json, print_rows
    from phaze.inputs.architecture_names import find_architecture

    fit = served_fit(file, find_architecture(arch), network, rung)
    if json:
        after = None if fit.left_out is None else 100 * fit.left_out
        errors = {"before_pct": 100 * fit.before, "left_out_pct": after}
        print_json({"dispatch_s": fit.dispatch_s, **errors, "rows": served_rows(fit)})
        return
    print_rows(served_rows(fit))
    for sentence in serving_sentences(fit, "--dispatch {:.3g}us"):
        typer.echo(sentence)
