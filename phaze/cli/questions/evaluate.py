"""`dse evaluate`: one architecture, best or given placement."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from phaze.cli import shared_options as opt
from phaze.cli import training_plan_options as own

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import ResultDocument


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
    plans: own.Plans = "full",
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

    Under the best plan of a space of plans that has what is fixed; degrees that divide nothing evenly are those of
    --plans any.

    Examples:
        dse evaluate --arch a100 --workload gpt3 --devices 1024
        dse evaluate --arch results/gpt3-400W --workload bert-large --tensor-parallel 2 --microbatch 4 --json

    Exit codes: 3

    See also: dse compare for several architectures; dse plan for more about the best plan and the next ones.
    """
    asked = dict(locals())
    from phaze.cli.console_output import console, print_json
    from phaze.inputs.input_files import record_question
    from phaze.report.terminal.design_tables import print_design
    from phaze.runs.run_directory import kept_answer

    with kept_answer(out) as keep:
        document = record_question(answer(asked), "evaluate", asked, ["dse", *sys.argv[1:]])
        keep(document)
    if json:
        print_json(document)
    else:
        print_design(document.best, console())


def answer(asked: Mapping[str, Any]) -> ResultDocument:
    """One architecture as the options say: under its best plan, within the choices that they fix."""
    from phaze.inputs.evaluate_inputs import evaluate_given

    return evaluate_given(asked["arch"], asked["workload"], asked)
