"""Placements of a small decoder, evaluated and played again."""

from __future__ import annotations

from small_cases import small_decoder

from phaze.explore.api import evaluate
from phaze.explore.request import Task
from phaze.hardware.architecture import load_architecture
from phaze.hardware.network import load_network
from phaze.placement.cluster import FixedDegrees, Recompute
from phaze.report.replay.replay import Degrees, replay
from phaze.workload.workload import Mode

CASES = {
    "one stage": (Mode.TRAINING, FixedDegrees(pipeline_parallel=1)),
    "four stages": (Mode.TRAINING, FixedDegrees(pipeline_parallel=4, microbatch=1, tensor_parallel=1)),
    "recompute": (
        Mode.TRAINING,
        FixedDegrees(pipeline_parallel=3, tensor_parallel=2, recompute=Recompute.FULL),
    ),
    "more stages than microbatches": (Mode.TRAINING, FixedDegrees(pipeline_parallel=5, microbatch=4)),
    "prefill": (Mode.PREFILL, FixedDegrees(pipeline_parallel=3, microbatch=2)),
    "decode": (Mode.DECODE, FixedDegrees(pipeline_parallel=2)),
}


def played(folder, name):
    """(result, replay) of a case."""
    mode, fixed = CASES[name]
    task = Task(small_decoder(folder, mode), 8, load_network(), global_batch=12, fixed=fixed)
    chip = load_architecture("tpuv4")
    result = evaluate(task, chip).workloads[task.workload.name]
    return result, again(task, result, chip)


def again(task, result, chip, **options):
    told = result.placement
    degrees = Degrees(
        told.data_parallel, told.tensor_parallel, told.microbatch_size, Recompute(told.recompute)
    )
    return replay(task, degrees, told.stages, [chip] * len(told.stages), **{"proven": True, **options})
