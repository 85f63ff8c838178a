"""`dse calibrate`: the calibrated rung of a chip from a user's own measurements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.shell_completion import archs

if TYPE_CHECKING:
    from phaze.hardware.architecture import Architecture
    from phaze.validation.measured.measured_cases import Row


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
    from phaze.cli.console_output import console, print_json, print_rows, say
    from phaze.document_names import DocumentName
    from phaze.inputs.architecture_names import find_architecture
    from phaze.runs.atomic_files import check_writable, write_atomically
    from phaze.validation.fits.kernel_calibration import Calibrator

    if out is not None:
        check_writable(out)
    chip = find_architecture(arch)
    with console(stderr=True).status("", spinner="dots") as status:
        rows = _rows(data, chip, status.update)
        found, laws = Calibrator(chip, rows).fit(status.update)
    table = [
        {
            "law": law.file.removesuffix(".yaml"),
            "rows_fitted": law.fitted,
            "rows_judged": law.aside,
            "error_before_pct": law.before_pct,
            "error_after_pct": law.after_pct,
        }
        for law in laws
    ]
    if json:
        print_json(
            {"schema": DocumentName.CALIBRATE.version(1), **found.model_dump(mode="json"), "errors": table}
        )
    else:
        print_rows(table)
    if out is not None:
        write_atomically(out, found.text())
        say(f"written: {out}", quiet=quiet)


def _rows(data: Path, chip: Architecture, progress: Callable[[str], None]) -> tuple[Row, ...]:
    """Measurements of a chip in a table of products, or in a folder of data sets. Raises InputError."""
    from phaze.validation.fits.kernel_calibration import rows_of
    from phaze.validation.measured.own_measurements import own_products

    if data.is_dir():
        return rows_of(data / "validation" if (data / "validation").is_dir() else data, chip, progress)
    return own_products(data, chip)
