"""`dse evaluate`: one architecture, best or given placement."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from phaze.cli import options as opt
from phaze.cli import plan_options as own

if TYPE_CHECKING:
    from phaze.explore.document import ResultDocument
    from phaze.explore.planning.document import PlanDocument

_PLACEMENT = ("data_parallel", "tensor_parallel", "pipeline_parallel", "microbatch", "recompute")
_CLUSTER = ("devices", "global_batch", "network")
_COSTS = ("attention", "fusion", "rung", "calibration")
_PASS = ("mode", "context", "kv_cache")


def command(
    arch: opt.Arch,
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
    whole: own.Whole = None,
    schedule: own.Schedule = None,
    chunks: own.Chunks = None,
    zero: own.Zero = None,
    order: own.Order = None,
    offload: own.Offload = None,
    framework: own.Framework = "ideal",
    plans: own.SomePlans = None,
    mode: opt.ModeOption = "training",
    context: opt.Context = None,
    kv_cache: opt.KvCache = "contiguous",
    attention: own.Attention = None,
    fusion: own.Fusion = None,
    recipe: opt.Recipe = None,
    bind: opt.Bind = None,
    network: opt.Network = "default",
    rung: opt.Rung = "analytic",
    calibration: opt.Calibration = None,
    out: opt.Keep = None,
    json: opt.Json = False,
) -> None:
    """Evaluate one architecture: iteration time, MFU, memory, energy, where the time goes.

    With context, expert or sequence parallelism, whole layers, a schedule, chunks, ZeRO, an order, offload or a
    framework: as a training plan, see dse plan. With a space of plans: the best of it.

    Examples:
        dse evaluate --arch a100 --workload gpt3 --devices 1024
        dse evaluate --arch results/gpt3-400W --workload bert-large --tensor-parallel 2 --microbatch 4 --json

    Exit codes: 3

    See also: dse compare for several architectures; dse plan for training plans.
    """
    asked = dict(locals())
    from phaze.cli.output import console, print_json
    from phaze.explore.document import ResultDocument
    from phaze.inputs.files import recorded
    from phaze.report.design import print_design
    from phaze.report.plan import print_plan
    from phaze.runs.answers import kept

    with kept(out) as keep:
        document = recorded(answer(asked), "evaluate", asked, ["dse", *sys.argv[1:]])
        keep(document)
    if json:
        print_json(document)
    elif isinstance(document, ResultDocument):
        print_design(document.best, console())
    else:
        print_plan(document, console())


def answer(asked: Mapping[str, Any]) -> ResultDocument | PlanDocument:
    """One architecture as the options say: its best placement, or a training plan where they ask for one."""
    from phaze.inputs.known import evaluated, evaluated_planned
    from phaze.inputs.plan import HELD, held, planned

    if asked["plans"] is not None:
        return evaluated_planned(asked["arch"], asked["workload"], asked)
    given: dict[str, Any] = {n: asked[n] for n in (*_CLUSTER, *_COSTS)} | {"bind": asked["bind"] or ()}
    choices = {name: asked[name] for name in HELD}
    special = held(**{k: v for k, v in choices.items() if k not in _PLACEMENT})
    if asked["framework"] != "ideal" or special:
        given |= {"mode": asked["mode"], "recipe": asked["recipe"]}
        return planned(asked["arch"], asked["workload"], asked["framework"], held(**choices), "any", **given)
    given |= {"attention": asked["attention"] or "flash", "fusion": asked["fusion"] or "all"}
    given |= {name: asked[name] for name in (*_PLACEMENT, *_PASS, "recipe")}
    return evaluated(asked["arch"], asked["workload"], **given)
