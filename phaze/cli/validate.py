"""`dse validate`: the model against measured hardware."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import options as opt

FAILED = 5
"""Exit code where an error is above its threshold."""

DATA = "DSE_DATA"
"""Environment variable that names the folder of measurements, or the folder that holds it."""


def command(
    data: Annotated[
        Path | None, typer.Option(help=f"Folder of measurements (CSV files); else {DATA} is read.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option("--set", help="One data set; may be repeated.")] = None,
    rung: Annotated[
        str, typer.Option(help="Rung of the model: roofline, analytic, calibrated.")
    ] = "analytic",
    out: Annotated[
        Path | None,
        typer.Option(help="Also write a page of all rungs with a picture per set into this folder."),
    ] = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compare the model with measured hardware; exit code 5 if an error is above its threshold.

    Example: dse validate --data measurements --set op_gemm_tpu_v4
    """
    from phaze.cli.output import choose, console, print_json
    from phaze.cost.rung import Rung
    from phaze.report.validate import print_report
    from phaze.report.validation_page import write_page
    from phaze.validation import validate as validation

    folder, level = _folder(data), choose(Rung, rung, "--rung")
    if quiet:
        compared = validation.compare(folder, only or ())
    else:
        with console(stderr=True).status("") as status:
            compared = validation.compare(folder, only or (), status.update)
    report = validation.report(folder, only or (), level, compared)
    if out is not None:
        write_page(out, compared)
    if json:
        print_json(report)
    else:
        print_report(report, console())
    if not report.passed:
        raise typer.Exit(FAILED)


def _folder(data: Path | None) -> Path:
    """The folder of measurements: the one given, its subfolder `validation`, or the environment's."""
    from phaze.errors import InputError

    if data is None:
        named = os.environ.get(DATA)
        if not named:
            raise InputError(f"give the folder of measurements: --data DIR, or {DATA} in the environment")
        data = Path(named)
    if not data.is_dir():
        raise InputError(f"{data}: no such folder")
    inner = data / "validation"
    return inner if inner.is_dir() else data
