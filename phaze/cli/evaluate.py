"""`dse evaluate`: one architecture, best or given placement."""

from __future__ import annotations

from typing import Annotated

import typer

from phaze.cli import options as opt

Degree = Annotated[int | None, typer.Option(min=1, help="Fix this degree (default: the best).")]


def command(
    arch: Annotated[
        str, typer.Option("--arch", "-a", help="Built-in chip, YAML file, run directory or RUN:ID.")
    ],
    workload: opt.Workload,
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    data_parallel: Degree = None,
    tensor_parallel: Degree = None,
    pipeline_parallel: Degree = None,
    microbatch: Degree = None,
    recompute: Annotated[str | None, typer.Option(help="none or full (default: the best).")] = None,
    mode: opt.ModeOption = "training",
    context: opt.Context = None,
    kv_cache: opt.KvCache = "contiguous",
    attention: opt.Attention = "flash",
    fusion: opt.Fusion = "all",
    bind: opt.Bind = None,
    network: opt.Network = "default",
    rung: opt.Rung = "analytic",
    calibration: opt.Calibration = None,
    json: opt.Json = False,
) -> None:
    """Evaluate one architecture: iteration time, MFU, memory, energy, where the time goes.

    Example: dse evaluate --arch a100 --workload gpt3 --devices 1024
    """
    from phaze.cli.output import choose, console, print_json
    from phaze.cli.task import find_architecture, input_files, make_task, with_inputs
    from phaze.explore.api import evaluate_document
    from phaze.placement.cluster import FixedDegrees, Recompute
    from phaze.report.design import print_design

    fixed = FixedDegrees(
        data_parallel,
        tensor_parallel,
        pipeline_parallel,
        microbatch,
        choose(Recompute, recompute, "--recompute") if recompute else None,
    )
    task = make_task(
        workload,
        mode=mode,
        attention=attention,
        devices=devices,
        global_batch=global_batch,
        network=network,
        bind=bind or (),
        context=context,
        kv_cache=kv_cache,
        fusion=fusion,
        rung=rung,
        calibration=calibration,
        fixed=fixed,
    )
    document = evaluate_document(task, find_architecture(arch))
    if json:
        print_json(with_inputs(document, input_files(workload, network)))
    else:
        print_design(document.best, console())
