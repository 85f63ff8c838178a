"""MLPerf Training: throughput of BERT-large and ResNet-50 under data parallelism alone, and GPT-3 175B with the plan of
every submission."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from phaze.hardware.cluster_network import Network, load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import gpt
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.training.bridge_runs import interleaved
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Workload
from phaze.workload.workload_library import builtin_spec
from phaze.workload.workload_loader import LoadOptions, load_workload, workload_of

UNKNOWN_NODES = "nodes joined by a network that the row does not say"
UNEVEN = "a batch that replicas cannot share evenly"
_TOKENS = 512 // 2
_SCORED = round(0.15 * _TOKENS)
_NODE = 8
_DGX = re.compile(r"^(dgxh100|eos)")


def throughput(columns: Columns) -> Judged:
    """Seconds of an iteration: the global batch over the logged throughput, evaluation left out where it is logged."""
    runs = PublishedRuns()
    rows = zip(*(columns[name] for name in ("system", "accelerator", "benchmark")), strict=True)
    devices, batches = (columns.numbers(name) for name in ("n_accelerators", "global_batch"))
    rates = zip(columns["samples_per_s_logged"], columns["samples_per_s_incl_eval"], strict=True)
    for row, ((system, accelerator, benchmark), rate) in enumerate(zip(rows, rates, strict=True)):
        size, batch = int(devices[row]), int(batches[row])
        chip, network = chip_of(accelerator), network_of(system, accelerator, size)
        if chip is None or network is None:
            runs.drop(NO_TEMPLATE if chip is None else UNKNOWN_NODES)
        elif batch % size:
            runs.drop(UNEVEN)
        else:
            measured_s = batch / next(float(text) for text in rate if text)
            strategy = ParallelPlan(batch // size, data_parallel=size)
            cluster = Cluster(size, batch, network)
            workload, framework = _software(benchmark)
            runs.keep(PublishedRun(chip, workload, cluster, framework, strategy, measured_s))
    return runs.judge()


def network_of(system: str, accelerator: str, devices: int) -> Network | None:
    """Of one node, or of several whose network is published; None for others ("2xNODE", or more than 8 devices)."""
    several = re.match(r"([2-9]|\d\d+)x[A-Z]", system) or devices > _NODE
    if several and not _DGX.match(system):
        return None
    if "NVIDIA" not in accelerator:
        return load_network("default")
    if "SXM" not in accelerator:
        return load_network("pcie4")
    return load_network("hgx-h100" if "H100" in accelerator or "H200" in accelerator else "hgx-a100")


@lru_cache(maxsize=4)
def _software(benchmark: str) -> tuple[Workload, Framework]:
    """A model, and what submissions run it by."""
    if benchmark.startswith("ResNet"):
        return load_workload("resnet50"), load_framework("data-parallel")
    return bert()


def bert() -> tuple[Workload, Framework]:
    """BERT-large as MLPerf has it, half of its positions padding, and what submissions run it by."""
    spec = builtin_spec("bert-large").model_dump(mode="json", exclude_unset=True)
    content = {**spec, "dimensions": {**spec["dimensions"], "scored": _SCORED}, "sequence_length": _TOKENS}
    return workload_of(content, "bert-large", LoadOptions()), load_framework("data-parallel-pytorch")


NO_PLAN = "the submission's plan is not given"
NO_RATE = "no rate without evaluations"

_PART_BLOCKS = 2
"""Blocks in each part of an interleaved pipeline, as in the submitted configurations that say it (96 / 6 / 8)."""

_NEWER = "v4.0"
"""First round with the newer generation of the software."""

_Cells = Mapping[str, str]


def training(columns: Columns) -> Judged:
    """Seconds per step between evaluations."""
    runs = PublishedRuns()
    for row, measured in enumerate(columns.numbers("step_s")):
        cells = {name: columns[name][row] for name in columns.text}
        chip = chip_of(cells["accelerator"])
        if chip is None:
            runs.drop(NO_TEMPLATE)
        elif not cells["tp"] or not cells["pp"]:
            runs.drop(NO_PLAN)
        elif np.isnan(measured):
            runs.drop(NO_RATE)
        else:
            network = "hgx-h100" if str(chip.value("family")) == "hopper" else "hgx-b200"
            cluster = Cluster(int(cells["n_accelerators"]), int(cells["global_batch"]), load_network(network))
            framework = load_framework("mlperf-2024" if cells["round"] >= _NEWER else "mlperf-2023")
            workload = _workload(cells, framework)
            runs.keep(PublishedRun(chip, workload, cluster, framework, _strategy(cells), float(measured)))
    return runs.judge()


def _workload(cells: _Cells, framework: Framework) -> Workload:
    layers, hidden, heads, vocabulary, tokens = (
        int(cells[name]) for name in ("layers", "hidden", "heads", "vocab", "seq_len")
    )
    fp8 = Recipe.FP8 if "fp8" in cells["precision"] else None
    fused = framework.attention, framework.fusion
    return gpt(layers, hidden, heads, vocabulary, tokens, *fused, "bf16", 0.0, fp8)


def _strategy(cells: _Cells) -> ParallelPlan:
    """The plan of a row; parts of a pipeline are as short as the submitted configurations have them."""
    tensor, pipeline, layers = int(cells["tp"]), int(cells["pp"]), int(cells["layers"])
    microbatch = int(cells["micro_batch"] or 1)
    replicas = int(cells["n_accelerators"]) // (tensor * pipeline)
    microbatches = int(cells["global_batch"]) // (microbatch * replicas)
    schedule, chunks = interleaved(pipeline, layers // (_PART_BLOCKS * pipeline), microbatches)
    return ParallelPlan(
        microbatch=microbatch,
        data_parallel=replicas,
        pipeline_parallel=pipeline,
        sharding=Sharding(tensor, tensor > 1),
        schedule=schedule,
        chunks=chunks,
        zero=Zero.OPTIMIZER,
    )
