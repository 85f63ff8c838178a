"""Training of Llama 3 on H100 and H200 that torchtitan publishes: time, and memory that PyTorch reserves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter

from phaze.arrays import Floats
from phaze.cost.fidelity import Fidelity
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import GIB
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework, TensorOverlap, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import decoder
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Workload
from phaze.workload.workload_library import builtin_spec

_NETWORK = "hgx-h100"

_MODELS = {"8B": "llama3-8b", "70B": "llama3-70b", "405B": "llama3-405b"}

_RECOMPUTE = {"full": Recompute.FULL, "none": Recompute.NONE}
"""Whatever else is selective."""

_INTERLEAVED = 2
"""Chunks of a stage where a schedule is interleaved and the row does not say how many."""

_Cells = Mapping[str, str]


def times(columns: Columns) -> Judged:
    """Seconds per iteration, from tokens per second and GPU."""
    runs = PublishedRuns()
    for row, rate in enumerate(columns.numbers("tokens_per_s_per_gpu")):
        if (run := _run(columns, row, runs)) is not None:
            tokens = run.cluster.global_batch * (run.workload.sequence_length or 1)
            runs.keep(replace(run, measured=tokens / (float(rate) * run.cluster.devices)))
    return runs.judge()


def memory(columns: Columns) -> Judged:
    """Bytes that PyTorch's allocator reserves on a GPU; the roofline has nothing to say of them."""
    runs = PublishedRuns()
    for row, cell in enumerate(columns["memory_gib"]):
        if not cell:
            runs.drop("memory not published")
        elif (run := _run(columns, row, runs)) is not None:
            runs.keep(replace(run, measured=float(cell) * GIB, figure=attrgetter("memory_bytes")))
    judged = runs.judge()
    said: dict[Fidelity, Floats] = {
        rung: judged.predicted[rung] for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED)
    }
    return replace(judged, predicted=said)


def _run(columns: Columns, row: int, runs: PublishedRuns) -> PublishedRun | None:
    """The run of a row, without what was measured of it; None where it is left out."""
    cells = {name: columns[name][row] for name in columns.text}
    chip = chip_of(cells["gpu"])
    model = next((name for size, name in _MODELS.items() if cells["model"].endswith(size)), None)
    if chip is None or model is None:
        runs.drop(NO_TEMPLATE if chip is None else "no dimensions of the model")
        return None
    framework, strategy = _framework(cells), _strategy(cells)
    batch = int(cells["local_batch"]) * strategy.data_parallel
    cluster = Cluster(int(cells["n_gpus"]), batch, load_network(_NETWORK))
    workload = _workload(model, int(cells["seq_len"]), _recipe(cells), framework)
    return PublishedRun(chip, workload, cluster, framework, strategy, float("nan"))


def _strategy(cells: _Cells) -> ParallelPlan:
    """Degrees by their names; with a pipeline, a replica's batch in as many microbatches as it has stages.

    There, weights stay whole for all microbatches (FSDP does not reshard).
    """
    found = {name: int(degree) for name, degree in re.findall(r"([A-Z]+) ?(\d+)", cells["parallelism"])}
    tensor, context, pipeline = (found.get(name, 1) for name in ("TP", "CP", "PP"))
    replicas = int(cells["n_gpus"]) // (tensor * context * pipeline)
    interleaved = pipeline > 1 and "interleaved" in f"{cells['parallelism']} {cells['options']}".lower()
    return ParallelPlan(
        microbatch=max(int(cells["local_batch"]) // pipeline, 1),
        data_parallel=replicas,
        pipeline_parallel=pipeline,
        sharding=Sharding(tensor, tensor > 1, context),
        schedule=Schedule.INTERLEAVED if interleaved else Schedule.ONE_F_ONE_B,
        chunks=_INTERLEAVED if interleaved else 1,
        recompute=_RECOMPUTE.get(cells["act_ckpt"], Recompute.SELECTIVE),
        zero=Zero.WEIGHTS,
        reshards=pipeline == 1,
        shard_group=found["FSDP"] * context if "HSDP" in found and "FSDP" in found else None,
    )


def _framework(cells: _Cells) -> Framework:
    """The generation that a row was published with, and what its options change."""
    name = "torchtitan-2024" if "2024" in cells["provenance"] else "torchtitan-2025"
    framework = load_framework(name if "compile" in cells["options"] else "torchtitan-2024-eager")
    changes: dict[str, object] = {}
    if "async" in cells["options"].lower():
        changes["tensor_overlap"] = TensorOverlap.CHUNKED
    if _recipe(cells) is Recipe.FP8_EARLY:
        changes["gathered_bytes"] = Recipe.FP8_EARLY.element_bytes
    if "PP" in cells["parallelism"]:  # no reductions until the last microbatch
        changes["reduces_every_microbatch"] = False
    return framework.model_copy(update=changes)


def _recipe(cells: _Cells) -> Recipe | None:
    """Scales of whole tensors are known before a gather, scales of rows are not exchanged."""
    if "fp8" not in cells["precision"]:
        return None
    return Recipe.FP8_ROWS if "rowwise" in cells["precision"] else Recipe.FP8_EARLY


@lru_cache(maxsize=64)
def _workload(model: str, tokens: int, recipe: Recipe | None, framework: Framework) -> Workload:
    dimensions = builtin_spec(model).dimensions.model_dump(exclude_none=True)
    dimensions |= {"joint_products": False, "max_positions": max(tokens, dimensions["max_positions"])}
    return decoder(dimensions, tokens, framework.attention, framework.fusion, "bf16", recipe=recipe)
