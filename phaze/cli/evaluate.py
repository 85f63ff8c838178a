"""`dse evaluate`: one architecture, best or given placement."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from phaze.cli import options as opt
from phaze.cli import plan_options as own

_PLACEMENT = ("data_parallel", "tensor_parallel", "pipeline_parallel", "microbatch", "recompute")
_CLUSTER = ("devices", "global_batch", "network")
_COSTS = ("attention", "fusion", "rung", "calibration")


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
    asked = dict(locals())
    from phaze.cli.output import console, print_json
    from phaze.inputs.files import input_files, with_inputs
    from phaze.inputs.known import evaluated
    from phaze.inputs.plan import HELD, held, planned
    from phaze.report.design import print_design
    from phaze.report.plan import print_plan

    placement: dict[str, Any] = {name: asked[name] for name in _PLACEMENT}
    cluster: dict[str, Any] = {name: asked[name] for name in _CLUSTER} | {"bind": bind or ()}
    costs: dict[str, Any] = {name: asked[name] for name in _COSTS}
    choices = {name: asked[name] for name in HELD}
    if framework != "ideal" or held(**{k: v for k, v in choices.items() if k not in _PLACEMENT}):
        plan = planned(arch, workload, framework, held(**choices), mode=mode, **cluster, **costs)
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
