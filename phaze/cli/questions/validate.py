"""`dse validate`: the model against measured hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.shell_completion import one_of
from phaze.errors import InputError
from phaze.inputs.recorded.input_files import DATA, measurements_folder

FAILED = 5
"""Exit code where an error is above its threshold."""


def command(
    data: Annotated[
        Path | None,
        typer.Option(
            help=f"Folder of measurements (CSV files); else that of {DATA}, and the H100 that phaze ships."
        ),
    ] = None,
    only: Annotated[list[str] | None, typer.Option("--set", help="One data set; may be repeated.")] = None,
    rung: Annotated[
        str,
        typer.Option(
            help="Rung of the model: roofline, analytic, calibrated.",
            autocompletion=one_of("roofline", "analytic", "calibrated"),
        ),
    ] = "analytic",
    out: Annotated[
        Path | None,
        typer.Option(help="Also write a page of all rungs with a picture per set into this folder."),
    ] = None,
    leave_out: Annotated[
        bool,
        typer.Option(help="Fit constants anew without each device, source, run and framework in turn."),
    ] = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compare the model with measured hardware; exit code 5 if an error is above its threshold.

    `--leave-out` shows under the calibrated rung what the model says of what its constants were not fitted on;
    fits take the rows of the sets that are compared, so that all of them belong together.
    Rows with bad cells are left out and named; a file that cannot be read is told at the end, after the others.

    Examples:
        dse validate
        dse validate --data measurements --set op_gemm_tpu_v4
        dse validate --data measurements --rung calibrated --out validation --json

    Exit codes: 5

    See also: dse calibrate, to fit the model to a chip.
    """
    from phaze.cli.console_output import console, print_json
    from phaze.cost.fidelity import Fidelity, check_judged
    from phaze.inputs.named_choices import choose
    from phaze.report.page.validation_page import write_page
    from phaze.report.terminal.check_tables import print_validation_report
    from phaze.validation import model_validation as validation
    from phaze.validation.fits.left_out import with_left_out

    folder, level = measurements_folder(data), choose(Fidelity, rung, "--rung")
    check_judged(level)
    refused: list[InputError] = []
    if quiet:
        compared = validation.compare(folder, only or (), refused=refused.append, own=data is None)
        compared = with_left_out(compared) if leave_out else compared
    else:
        with console(stderr=True).status("") as status:
            compared = validation.compare(folder, only or (), status.update, refused.append, own=data is None)
            compared = with_left_out(compared, status.update) if leave_out else compared
    if refused and not compared:
        raise refused[0]
    report = validation.report(folder, only or (), level, compared)
    if out is not None:
        write_page(out, compared)
    if json:
        print_json(report)
    else:
        print_validation_report(report, console())
    if refused:
        raise InputError("; ".join(map(str, refused)))
    if not report.passed:
        raise typer.Exit(FAILED)
