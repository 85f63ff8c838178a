"""GPT-3 175B of MLPerf Training: seconds per step of submitted systems, with the plan of those that say it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from phaze.hardware.network import load_network
from phaze.placement.cluster import Cluster
from phaze.placement.strategy.framework import Framework, load_framework
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.validation.cases import Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.models import gpt
from phaze.validation.sets.bridge import interleaved
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.validation.training import Run, Runs
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.sharding.parallel_degrees import Sharding
from phaze.workload.workload import Workload

NO_PLAN = "the submission's plan is not given"
NO_RATE = "no rate without evaluations"

_PART_BLOCKS = 2
"""Blocks in each part of an interleaved pipeline, as in the submitted configurations that say it (96 / 6 / 8)."""

_NEWER = "v4.0"
"""First round with the newer generation of the software."""

_Cells = Mapping[str, str]


def training(columns: Columns) -> Judged:
    """Seconds per step between evaluations."""
    runs = Runs()
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
            runs.keep(Run(chip, workload, cluster, framework, _strategy(cells), float(measured)))
    return runs.judge()


def _workload(cells: _Cells, framework: Framework) -> Workload:
    layers, hidden, heads, vocabulary, tokens = (
        int(cells[name]) for name in ("layers", "hidden", "heads", "vocab", "seq_len")
    )
    fp8 = Recipe.FP8 if "fp8" in cells["precision"] else None
    fused = framework.attention, framework.fusion
    return gpt(layers, hidden, heads, vocabulary, tokens, *fused, "bf16", 0.0, fp8)


def _strategy(cells: _Cells) -> Strategy:
    """The plan of a row; parts of a pipeline are as short as the submitted configurations have them."""
    tensor, pipeline, layers = int(cells["tp"]), int(cells["pp"]), int(cells["layers"])
    microbatch = int(cells["micro_batch"] or 1)
    replicas = int(cells["n_accelerators"]) // (tensor * pipeline)
    microbatches = int(cells["global_batch"]) // (microbatch * replicas)
    schedule, chunks = interleaved(pipeline, layers // (_PART_BLOCKS * pipeline), microbatches)
    return Strategy(
        microbatch=microbatch,
        data_parallel=replicas,
        pipeline_parallel=pipeline,
        sharding=Sharding(tensor, tensor > 1),
        schedule=schedule,
        chunks=chunks,
        zero=Zero.OPTIMIZER,
    )
