"""Iterations of Megatron-DeepSpeed: GPT models on A100 as vTrain publishes them, and Sailor's on GH200 and on mixed
consumer GPUs, with their memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import Network
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s
from phaze.hardware.network_tiers import Medium
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.training.iteration import Iteration
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of, network_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import gpt
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns, RunGroup, estimator
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Workload

_FRAMEWORK = "megatron-deepspeed-2022"
_VOCABULARY = 50304  # GPT-2's, padded to a multiple of 128
_CLUSTER_CHIP = (
    "A100-SXM 80GB"  # inferred: one row has 3.6 billion parameters and their optimizer on each device
)
_GPT_SIZES = (
    "layers",
    "hidden",
    "heads",
    "seq_len",
    "tp",
    "dp",
    "pp",
    "micro_batch",
    "n_gpus",
    "global_batch",
)


def single_node(columns: Columns) -> Judged:
    """Two to eight devices of one node."""
    return _judge_vtrain(columns, "hgx-a100", None)


def multi_node(columns: Columns) -> Judged:
    """Eight to 64 nodes."""
    return _judge_vtrain(columns, "a100-800g", chip_of(_CLUSTER_CHIP))


def _judge_vtrain(columns: Columns, network: str, known: Architecture | None) -> Judged:
    """Rows on a network; of a chip that is `known`, or the one that they name."""
    runs, framework, wires = PublishedRuns(), load_framework(_FRAMEWORK), network_of(network)
    measured = columns.numbers("iteration_ms") * 1e-3
    for row, name in enumerate(columns["gpu"]):
        chip = known or chip_of(name)
        if chip is None:
            runs.drop(NO_TEMPLATE)
            continue
        layers, hidden, heads, tokens, tp, dp, pp, each, devices, batch = (
            int(columns[size][row]) for size in _GPT_SIZES
        )
        workload = gpt(
            layers, hidden, heads, _VOCABULARY, tokens, framework.attention, framework.fusion, "fp16"
        )
        strategy = ParallelPlan(each, dp, pp, Sharding(tp), recompute=Recompute.FULL)
        cluster = Cluster(devices, batch, wires)
        runs.keep(PublishedRun(chip, workload, cluster, framework, strategy, float(measured[row])))
    return runs.judge()


_VARIANTS = {"GH200": "GH200 96GB"}
"""Versions of devices that a name leaves open: Alps has the one with 96 GB of HBM3 (CSCS)."""
_SYSTEMS = {"GH200": ("gh200-quad", "megatron-deepspeed-fp32")}
_OTHERS = ("mit-ethernet", "megatron-deepspeed-fp32-geforce")
_RELU = "OPT"  # arXiv 2205.01068, section 2; GPT-Neo has GELU
_FLAGGED = "flagged as doubtful by the file"
_TOO_LITTLE = "less memory than weights, optimizer and kept activations of the row's plan take"
_SAILOR_SIZES = ("layers", "hidden", "heads", "vocab", "seq_len")


def times(columns: Columns) -> Judged:
    """Seconds of an iteration."""
    return _judge_sailor(columns, "iteration_s", lambda iteration: iteration.iteration_s)


def memory(columns: Columns) -> Judged:
    """Peak bytes on a device, of which a roofline says nothing; rows are left out whose plan cannot have fitted."""
    judged = _judge_sailor(columns, "peak_mem_bytes", lambda iteration: iteration.memory_bytes, _held_bytes)
    predicted: dict[Fidelity, NDArray[np.float64]] = dict(judged.predicted)
    del predicted[Fidelity.ROOFLINE]
    return replace(judged, predicted=predicted)


@dataclass(frozen=True)
class _SailorRow:
    """One row by column name."""

    columns: Columns
    row: int

    def text(self, name: str) -> str:
        return self.columns[name][self.row]

    def number(self, name: str) -> int:
        return int(self.text(name))

    @property
    def chip(self) -> Architecture | None:
        """The slowest of its devices; None where one has no template."""
        names = re.split(r"[;+]", self.text("gpu_per_stage_replica"))
        found = [chip_of(_VARIANTS.get(name, name)) for name in names]
        known = [chip for chip in found if chip is not None]
        slowest = min(known, key=_memory_bytes_per_s, default=None)
        return slowest if len(known) == len(found) else None

    @property
    def strategy(self) -> ParallelPlan:
        """Degrees and stages; the file counts the embedding and the head as layers of the outer ones."""
        stages = [int(layers) for layers in self.text("layers_per_stage").split(";")]
        stages[0] -= 1
        stages[-1] -= 1
        return ParallelPlan(
            microbatch=self.number("micro_batch"),
            data_parallel=self.number("dp"),
            pipeline_parallel=self.number("pp"),
            sharding=Sharding(self.number("tp")),
            stages=tuple(stages),
        )

    @property
    def framework(self) -> Framework:
        return load_framework(self._system[1])

    @property
    def workload(self) -> Workload:
        """Head and embedding are two tables, as the trainer's models have them."""
        sizes, said = tuple(self.number(name) for name in _SAILOR_SIZES), self.framework
        activation = "relu" if self.text("model").startswith(_RELU) else "gelu_tanh"
        built = said.attention, said.fusion, "tf32"
        return gpt(*sizes, *built, dropout=0.0, tied=False, activation=activation)

    @property
    def cluster(self) -> Cluster:
        network = _nodes_of(network_of(self._system[0]), self.number("gpus_per_node"))
        return Cluster(self.number("n_gpus"), self.number("global_batch"), network)

    @property
    def _system(self) -> tuple[str, str]:
        """Names of its network and its framework."""
        return _SYSTEMS.get(self.text("gpu_per_stage_replica"), _OTHERS)


def _judge_sailor(
    columns: Columns,
    measured: str,
    figure: Callable[[Iteration], float],
    least: Callable[[Iteration], float] = lambda _: 0.0,
) -> Judged:
    """Judge rows by a figure of their iteration; none measured below the `least` that any run of it takes."""
    runs, known, values = PublishedRuns(), dict[RunGroup, Estimator](), columns.numbers(measured)
    for number in range(columns.rows):
        row, value = _SailorRow(columns, number), float(values[number])
        chip = row.chip
        if row.text("flag") or chip is None:
            runs.drop(_FLAGGED if row.text("flag") else NO_TEMPLATE)
            continue
        run = PublishedRun(chip, row.workload, row.cluster, row.framework, row.strategy, value, figure)
        if value < least(estimator(run, Fidelity.ANALYTIC, known).iteration(run.strategy)):
            runs.drop(_TOO_LITTLE)
            continue
        runs.keep(run)
    return runs.judge()


def _held_bytes(iteration: Iteration) -> float:
    """Least memory of a device under the plan in bytes, whatever the libraries: no buffers, no losses."""
    return max(
        part.weights_bytes + part.gradients_bytes + part.optimizer_bytes + part.activations_bytes
        for part in iteration.memory
    )


def _memory_bytes_per_s(chip: Architecture) -> float:
    return float(hbm_bandwidth_bytes_per_s(to_table([chip]))[0])


def _nodes_of(network: Network, devices: int) -> Network:
    """The network with so many devices in each node, which share the node's adapter."""
    inside = [tier for tier in network.tiers if tier.medium is not Medium.ADAPTER]
    kept = [tier for tier in inside if (tier.devices or devices) <= devices]
    whole, outer = inside[-1].devices or devices, network.tiers[-1]
    shared = outer.changed(bandwidth_bytes_per_s=(outer.bandwidth_bytes_per_s or 0.0) * whole / devices)
    return network.model_copy(update={"tiers": (*kept, shared)})
