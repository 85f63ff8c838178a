"""`dse evaluate`: one architecture, best or given placement."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from phaze.cli import options as opt
from phaze.cli import plan_options as own


def command(
    arch: Annotated[
        str, typer.Option("--arch", "-a", help="Built-in chip, YAML file, run directory or RUN:ID.")
    ],
    workload: opt.Workload,
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    data_parallel: own.Degree = None,
    tensor_parallel: own.Degree = None,
    pipeline_parallel: own.Degree = None,
    microbatch: own.Degree = None,
    recompute: own.Recompute = None,
    context_parallel: own.Degree = None,
    expert_parallel: own.Degree = None,
    sequence_parallel: own.Sequence = None,
    schedule: own.Schedule = None,
    chunks: own.Chunks = None,
    zero: own.Zero = None,
    order: own.Order = None,
    framework: own.Framework = "ideal",
    mode: opt.ModeOption = "training",
    context: opt.Context = None,
    kv_cache: opt.KvCache = "contiguous",
    attention: own.Attention = None,
    fusion: own.Fusion = None,
    bind: opt.Bind = None,
    network: opt.Network = "default",
    rung: opt.Rung = "analytic",
    calibration: opt.Calibration = None,
    json: opt.Json = False,
) -> None:
    """Evaluate one architecture: iteration time, MFU, memory, energy, where the time goes.

    With context, expert or sequence parallelism, a schedule, chunks, ZeRO, an order or a framework: as a training plan,
    see dse plan.

    Example: dse evaluate --arch a100 --workload gpt3 --devices 1024
    """
    from phaze.cli.output import console, print_json
    from phaze.inputs.files import input_files, with_inputs
    from phaze.inputs.known import evaluated
    from phaze.inputs.plan import held, planned
    from phaze.report.design import print_design
    from phaze.report.plan import print_plan

    cluster: dict[str, Any] = {
        "devices": devices,
        "global_batch": global_batch,
        "network": network,
        "bind": bind or (),
    }
    costs: dict[str, Any] = {
        "attention": attention,
        "fusion": fusion,
        "rung": rung,
        "calibration": calibration,
    }
    beyond = held(
        context_parallel=context_parallel,
        expert_parallel=expert_parallel,
        sequence_parallel=sequence_parallel,
        schedule=schedule,
        chunks=chunks,
        zero=zero,
        order=order,
    )
    placement: dict[str, Any] = {
        "data_parallel": data_parallel,
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "microbatch": microbatch,
        "recompute": recompute,
    }
    if beyond or framework != "ideal":
        choices = {**held(**placement), **beyond}
        plan = planned(arch, workload, framework, choices, mode=mode, **cluster, **costs)
        print_json(plan) if json else print_plan(plan, console())
        return
    document = evaluated(
        arch,
        workload,
        mode=mode,
        context=context,
        kv_cache=kv_cache,
        **placement,
        **cluster,
        **costs | {"attention": attention or "flash", "fusion": fusion or "all"},
    )
    if json:
        print_json(with_inputs(document, input_files(workload, network), ["dse", *sys.argv[1:]]))
    else:
        print_design(document.best, console())
