"""Training runs on AWS Trainium1, by their layout over NeuronCores, two of them per chip."""

from __future__ import annotations

import re
from dataclasses import replace

from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import decoder, dimensions_of
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.training.maxtext_runs import NO_MODEL, NO_SIZES
from phaze.workload.parallel_degrees import Sharding

NO_LAYOUT = "layout over chips not given"
_CORES = 2  # of a chip
_DEGREES = re.compile(r"TP=(\d+) DP=(\d+)(?: PP=(\d+))?")


def training(columns: Columns) -> Judged:
    """Iterations of decoders whose sequence length and layout are given."""
    runs = PublishedRuns()
    sizes = [
        columns.numbers(name) for name in ("n_chips", "micro_batch", "global_batch", "seq_len", "step_s")
    ]
    for row, (name, model, topology) in enumerate(
        zip(columns["accelerator"], columns["model"], columns["topology"], strict=True)
    ):
        own = [float(column[row]) for column in sizes]
        chip, degrees = chip_of(name), _DEGREES.search(topology)
        if chip is None or not all(size > 0 for size in own):
            runs.drop(NO_TEMPLATE if chip is None else NO_SIZES)
            continue
        *counts, measured_s = own
        chips, microbatch, batch, tokens = (round(count) for count in counts)
        dimensions = dimensions_of(model.removesuffix(" pre-training"), tokens)
        strategy = None if degrees is None else _strategy(degrees, microbatch, topology)
        if dimensions is None or strategy is None or strategy.devices != chips:
            runs.drop(NO_MODEL if dimensions is None else NO_LAYOUT)
            continue
        framework = load_framework("neuronx-2024")
        workload = decoder(dimensions, tokens, framework.attention, framework.fusion)
        cluster = Cluster(chips, batch, load_network("trn1-32xlarge"))
        others = (replace(strategy, recompute=Recompute.FULL),)
        runs.keep(PublishedRun(chip, workload, cluster, framework, strategy, measured_s, others=others))
    return runs.judge()


def _strategy(degrees: re.Match[str], microbatch: int, topology: str) -> ParallelPlan | None:
    """Degrees over chips of a row; None where a tensor-parallel group is no whole number of chips."""
    cores, data, pipeline = (int(degree or 1) for degree in degrees.groups())
    if cores % _CORES:
        return None
    tensor = cores // _CORES
    return ParallelPlan(
        microbatch=microbatch,
        data_parallel=data,
        pipeline_parallel=pipeline,
        sharding=Sharding(tensor, sequence=tensor > 1),
        zero=Zero.OPTIMIZER if "ZeRO-1" in topology else Zero.NONE,
    )
