"""`dse run`: the main job."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import options as opt

if TYPE_CHECKING:
    from phaze.explore.document import ResultDocument

INTERRUPTED = 130


def command(
    workload: opt.Workloads,
    power: opt.Power = None,
    area: opt.Area = None,
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    mode: opt.ModeOption = "training",
    attention: opt.Attention = "flash",
    space: opt.Space = "default",
    network: opt.Network = "default",
    objective: Annotated[
        str,
        typer.Option(help="throughput, throughput_per_tdp, tdp, area, energy_per_sample or memory."),
    ] = "throughput",
    time_limit: opt.TimeLimit = "60s",
    gap: Annotated[float, typer.Option(min=0.0, help="Stop as soon as this gap is proven.")] = 0.0,
    tdp_margin: opt.TdpMargin = 1.0,
    seed: opt.Seed = 0,
    out: opt.Out = None,
    resume: opt.Resume = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Find the best architecture and placement, with a proof.

    Example: dse run --workload gpt3 --power 400W
    """
    from phaze.cli.interrupt import interruptible
    from phaze.cli.output import choose, progress
    from phaze.explore.request import ExploreRequest, Objective
    from phaze.explore.search import explore
    from phaze.quantity import parse_area, parse_power, parse_time
    from phaze.runs.directory import default_directory, run_directory, write_run
    from phaze.workload.workload import Attention, Mode

    request = ExploreRequest(
        workloads=tuple(workload),
        power_w=parse_power(power, "--power") if power else None,
        area_mm2=parse_area(area, "--area") if area else None,
        devices=devices,
        global_batch=global_batch,
        mode=choose(Mode, mode, "--mode"),
        attention=choose(Attention, attention, "--attention"),
        space=space,
        network=network,
        objective=choose(Objective, objective, "--objective"),
        time_limit_s=parse_time(time_limit, "--time-limit"),
        gap=gap,
        tdp_margin=tdp_margin,
        seed=seed,
    )
    folder = out or default_directory("+".join(Path(w).stem for w in workload), datetime.now(UTC))
    with run_directory(folder, resume=resume), interruptible() as stop, progress(quiet=quiet) as report:
        answer = explore(request, progress=report, stop=stop)
        document = with_command(answer.document)
        write_run(folder, document, answer.designs)
        interrupted = stop()
    show(document, folder, json=json, quiet=quiet)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def with_command(document: ResultDocument) -> ResultDocument:
    """The document with the command line that was typed."""
    manifest = document.manifest.model_copy(update={"command": ["dse", *sys.argv[1:]]})
    return document.model_copy(update={"manifest": manifest})


def show(document: ResultDocument, folder: Path, *, json: bool, quiet: bool) -> None:
    """Print the document or its tables, and where the run is kept."""
    from phaze.cli.output import console, print_json, say
    from phaze.report.tables import print_result

    if json:
        print_json(document)
    else:
        print_result(document, console())
    say(f"run directory: {folder}", quiet=quiet)
