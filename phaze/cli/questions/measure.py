"""`dse measure`: tables for a user's own measurements, and served models against the model."""

from __future__ import annotations

import math
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
    from phaze.cli.console_output import print_json, print_rows
    from phaze.cost.fidelity import Fidelity
    from phaze.hardware.cluster_network import load_network
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.named_choices import choose
    from phaze.validation.measured.own_serving import fit_serving, own_served

    chip, links, kind = find_architecture(arch), load_network(network), choose(Fidelity, rung, "--rung")
    fit = fit_serving(own_served(file), chip, links, kind)
    rows = [
        {
            "workload": row.workload,
            "tensor_parallel": row.width,
            "concurrency": row.concurrency,
            "measured_s": row.measured_s,
            "model_s": _finite(plain),
            "with_dispatch_s": _finite(fitted),
        }
        for row, plain, fitted in zip(
            fit.rows, fit.predicted_s[:, 0].tolist(), fit.fitted_s.tolist(), strict=True
        )
    ]
    after = None if fit.left_out is None else 100 * fit.left_out
    if json:
        errors = {"before_pct": 100 * fit.before, "left_out_pct": after}
        print_json({"dispatch_s": fit.dispatch_s, **errors, "rows": rows})
        return
    print_rows(rows)
    typer.echo(f"mean error {100 * fit.before:.1f} %")
    if fit.dispatch_s > 0:
        told = f"mean error {after:.1f} % on rows that were left out of the fit"
        typer.echo(f"with --dispatch {1e6 * fit.dispatch_s:.3g}us: {told}")
    else:
        typer.echo("no host time per kernel makes it smaller on rows that were left out of the fit")


def _finite(value: float) -> float | None:
    """None where prompts leave no pass in which a token could be decoded."""
    return value if math.isfinite(value) else None
