"""`dse calibrate`: the calibrated rung of a chip from a user's own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.shell_completion import archs


def command(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table of products (dse measure template gemm), or a folder with files as dse validate reads."
        ),
    ],
    arch: Annotated[
        str, typer.Option("--arch", "-a", help="The chip: built-in name or YAML file.", autocompletion=archs)
    ],
    out: Annotated[Path | None, typer.Option(help="Write the constants here, for --calibration.")] = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Fit the cost model's constants to measurements of a chip; every fifth row is judged, not fitted.

    Examples:
        dse calibrate products.csv --arch a100-80gb --out a100.calibration.yaml
        dse calibrate measurements --arch mychip.yaml --json

    See also: dse measure template for a table to fill in; --calibration of dse run, plan, evaluate and compare.
    """
    from phaze.api.measured_verbs import calibrated, law_rows
    from phaze.cli.console_output import console, print_json, print_rows, say
    from phaze.document_names import DocumentName
    from phaze.inputs.architecture_names import find_architecture
    from phaze.runs.atomic_files import check_writable, write_atomically

    if out is not None:
        check_writable(out)
    chip = find_architecture(arch)
    with console(stderr=True).status("", spinner="dots") as status:
        found, laws = calibrated(data, chip, status.update)
    table = law_rows(laws)
    if json:
        print_json(
            {"schema": DocumentName.CALIBRATE.version(1), **found.model_dump(mode="json"), "errors": table}
        )
    else:
        print_rows(table)
    if out is not None:
        write_atomically(out, found.text())
        say(f"written: {out}", quiet=quiet)
