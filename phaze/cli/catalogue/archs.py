"""`dse archs`: the built-in architectures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.catalogue.noun_commands import Row, noun_app
from phaze.cli.shell_completion import archs, one_of, workloads

if TYPE_CHECKING:
    from phaze.hardware.architecture import Architecture


def _rows() -> Sequence[Row]:
    from phaze.api.catalogue_verbs import archs

    return archs().rows


def _show(name: str) -> str:
    from phaze.inputs.architecture_names import find_architecture
    from phaze.report.terminal.architecture_yaml import architecture_text

    return architecture_text(find_architecture(name))


app = noun_app("archs", "architectures", _rows, _show, archs, "h100", hidden=("description",))


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the chip, or path of the file.", metavar="NAME")],
    like: Annotated[
        str, typer.Option(help="Built-in chip to start from.", metavar="ARCH", autocompletion=archs)
    ] = "h100",
) -> None:
    """Write a commented architecture file to start from: another chip, and what differs from it.

    Examples:
        dse archs new mychip --like a100-80gb
        dse archs new folder/mychip.yaml

    See also: dse archs show for the fields; dse explain for what they mean.
    """
    from phaze.cli.catalogue.noun_commands import write_new
    from phaze.hardware.architecture import load_architecture

    base = load_architecture(like)
    path = write_new(name, lambda stem: _NEW.format(name=stem, base=base.name, rate=_rate(base)))
    typer.echo(
        f"{path}: change it, then look at it with dse evaluate --arch {path} --workload gpt2-xl --devices 8"
    )


_NEW = """# A chip of your own: {base}, and what differs from it.
schema_version: 1
name: {name}
description: A variant of {base}.
base: {base}
fields:  # all fields of a chip: dse archs show {base}; what one means: dse explain FIELD
  link_bandwidth_bytes_per_s: {rate}  # per direction
  # node: N5
  # hbm_capacity_bytes: 96GiB
  # global_buffer_bytes: 64MiB
"""


def _rate(chip: Architecture) -> str:
    """Bandwidth of the links as files have it."""
    return f"{float(chip.fields['link_bandwidth_bytes_per_s']) / 1e9:g}GB/s"


@app.command()
def export(
    arch: Annotated[
        str,
        typer.Argument(
            help="Built-in chip, YAML file, run directory or RUN:ID.", metavar="ARCH", autocompletion=archs
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--for", help="scale-sim or accelforge.", autocompletion=one_of("scale-sim", "accelforge")
        ),
    ] = "scale-sim",
    workload: Annotated[
        str | None,
        typer.Option(
            *("--workload", "-w"),
            help="Also write the matrix products of this workload (default: of a run its own).",
            metavar="MODEL",
            autocompletion=workloads,
        ),
    ] = None,
    mode: opt.ModeOption = "training",
    attention: opt.Attention = "flash",
    microbatch: opt.Microbatch = 1,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, help="Devices that each product is divided over.")
    ] = 1,
    bind: opt.Bind = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files (default: ./ARCH-SIMULATOR).", metavar="DIR")
    ] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Write input files of another simulator: the chip, and the products of a workload; comments say what is left out.

    Examples:
        dse archs export tpuv4 --for accelforge
        dse archs export results/gpt3-400W --for scale-sim --workload gpt3 --out gpt3-scale-sim
    """
    from phaze.api.workload_verbs import exported_files
    from phaze.cli.console_output import say
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.task_inputs import open_workload
    from phaze.runs.atomic_files import file_name, write_atomically
    from phaze.runs.run_directory import run_directory

    chip, workload = find_architecture(arch), workload or _workload_of_run(Path(arch))
    opened = open_workload(workload, mode=mode, attention=attention, bind=bind or ()) if workload else None
    files = exported_files(chip, target, "--for", opened, microbatch, tensor_parallel)
    with run_directory(out or Path(f"{file_name(chip.name)}-{target}")) as folder:
        for name, text in files.items():
            write_atomically(folder / name, text)
    say(f"written: {', '.join(str(folder / name) for name in files)}", quiet=quiet)
    if opened is None:
        say("no products: --workload writes those of a model", quiet=quiet)


def _workload_of_run(run: Path) -> str | None:
    """The first workload that a run was asked about; none of what is no run, or was asked about an object."""
    from phaze.runs.document_formats import load_answer
    from phaze.runs.run_directory import RESULT

    folder = Path(str(run).rpartition(":")[0]) if ":" in str(run) else run
    if not (folder / RESULT).is_file():
        return None
    manifest = load_answer(folder).manifest
    asked = manifest.asked.options.get("workload") if manifest and manifest.asked else None
    first = asked[0] if isinstance(asked, list) and asked else asked
    return first if isinstance(first, str) else None
