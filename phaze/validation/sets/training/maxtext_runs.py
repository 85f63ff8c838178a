"""Training runs of MaxText (JAX) on slices of TPU pods, Google's recipes among them: weights divided over a slice,
replicas across slices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import Network, load_network
from phaze.hardware.derived_figures import peak_flops_per_s
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.training.memory.memory_footprint import INPUT
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import decoder, dimensions_of
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE, UNKNOWN_FORMAT
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Workload

_PODS: Mapping[str, str] = MappingProxyType(
    {
        "tpuv4": "tpu-v4-pod",
        "tpuv5e": "tpu-v5e-pod",
        "tpuv5p": "tpu-v5p-pod",
        "tpuv6e": "tpu-v6e-pod",
        "tpuv7": "tpu-v7-pod",
        "h100": "hgx-h100",
        "a100-80gb": "hgx-a100",
    }
)
_CUBE = 4
"""Chips along a side of the cubes that slices of three-dimensional pods are put together from."""


def slice_network(chip: Architecture, chips: int) -> Network | None:
    """The network of slices of so many chips; None for chips that no published run was made on.

    A slice of a three-dimensional pod is a torus of its own, as near to a cube as it can be; of a two-dimensional
    pod it is a part of the pod's.
    """
    name = _PODS.get(chip.name)
    if name is None:
        return None
    pod = load_network(name)
    inner, *outer = pod.tiers
    if len(inner.dims) != 3:
        return pod
    own = inner.model_copy(update={"devices": chips, "dims": extents(chips)})
    return pod.model_copy(update={"tiers": (own, *outer)})


def least_slices(chip: Architecture, chips: int) -> int:
    """Slices that so many chips make where nobody says how many: as few as pods are large."""
    name = _PODS.get(chip.name)
    pod = None if name is None else load_network(name).tiers[0]
    torus = pod is not None and bool(pod.dims)
    return -(-chips // (pod.devices or chips)) if pod is not None and torus else 1


def extents(chips: int) -> tuple[int, int, int]:
    """Sides of a slice, ascending: whole cubes where it has any, doubled or tripled along the shortest."""
    cubes, rest = divmod(chips, _CUBE**3)
    sides = [1, 1, 1] if rest else [_CUBE] * 3
    for factor in reversed(_factors(chips if rest else cubes)):
        sides.sort()
        sides[0] *= factor
    a, b, c = sorted(sides)
    return a, b, c


def _factors(number: int) -> list[int]:
    """Prime factors, ascending."""
    found, divisor = [], 2
    while divisor <= math.isqrt(number):
        if number % divisor:
            divisor += 1
        else:
            found.append(divisor)
            number //= divisor
    return [*found, number] if number > 1 else found


FRAMEWORK = "maxtext-2024"

_PRODUCTS = frozenset({"qkv", "projection", "gate_up", "up", "down", "router"})


@dataclass(frozen=True, slots=True)
class Remat:
    """Tensors that a policy keeps on the device and in the host's memory; the rest of a block runs again."""

    kept: frozenset[str] = frozenset()
    offloaded: frozenset[str] = frozenset()
    recompute: Recompute = Recompute.FULL


POLICIES: Mapping[str, Remat] = MappingProxyType(
    {
        "none": Remat(recompute=Recompute.NONE),
        "minimal": Remat(kept=_PRODUCTS),
        "minimal_flash": Remat(kept=_PRODUCTS | {"flash"}),
        "minimal_with_context": Remat(kept=_PRODUCTS | {"flash"}),
        "minimal_offloaded": Remat(offloaded=_PRODUCTS),
        "save_dot_except_mlp": Remat(kept=frozenset({"qkv", "projection"})),
        "save_dot_except_mlpwi": Remat(kept=frozenset({"qkv", "projection", "down"})),
        "save_qkv_proj": Remat(kept=frozenset({"qkv"})),
        "qkv_proj_offloaded": Remat(offloaded=frozenset({"qkv"})),
        "full": Remat(),
    }
)
"""MaxText's policies by name (layers/models.py)."""
_UNSAID = (POLICIES["minimal"], Remat(offloaded=frozenset({"qkv", INPUT})))
"""Candidate policies of a run that gives none: the least recompute, or that of the published recipes."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run as its source gives it: chips in slices, sequences per chip, tensor-parallel width, policy where known."""

    chip: Architecture
    workload: Workload
    chips: int
    slices: int
    batch: float
    tensor: int
    policy: str

    @property
    def strategies(self) -> tuple[ParallelPlan, ...]:
        """Candidate plans of the run: one microbatch, weights divided over each slice, gradients over all."""
        replicas = self.chips // self.tensor
        policies = (POLICIES[self.policy],) if self.policy in POLICIES else _UNSAID
        return tuple(
            ParallelPlan(
                microbatch=max(round(self.batch * self.tensor), 1),
                data_parallel=replicas,
                sharding=Sharding(self.tensor, sequence=self.tensor > 1),
                recompute=policy.recompute,
                kept=policy.kept,
                offloaded=policy.offloaded,
                zero=Zero.WEIGHTS,
                shard_group=replicas // self.slices,
            )
            for policy in policies
        )

    def run(self, measured_s: float) -> PublishedRun | None:
        """The run with its measured iteration; None where the chip has no network."""
        network = slice_network(self.chip, self.chips // self.slices)
        if network is None:
            return None
        first, *others = self.strategies
        cluster = Cluster(self.chips, round(self.chips * self.batch), network)
        framework = load_framework(FRAMEWORK)
        return PublishedRun(
            self.chip, self.workload, cluster, framework, first, measured_s, others=tuple(others)
        )


def built(dimensions: Mapping[str, Any], tokens: int) -> Workload:
    """A decoder as MaxText builds it."""
    framework = load_framework(FRAMEWORK)
    return decoder(dimensions, tokens, framework.attention, framework.fusion)


NO_NETWORK = "no network of this chip"
NO_MODEL = "no dimensions of this model"
NO_SIZES = "no sequence length, no number of chips, or nothing measured"

_USUAL_TOKENS = 32768
"""Of a chip, where a row does not say how many: about what most published runs have."""


def training(columns: Columns) -> Judged:
    """Iterations of MaxText's own tables."""
    runs, said = PublishedRuns(), _Said(columns)
    for row in range(columns.rows):
        found = said.job(row)
        if isinstance(found, Job):
            run = found.run(said.iteration_s(row, found))
            runs.drop(NO_NETWORK) if run is None else runs.keep(run)
        else:
            runs.drop(found)
    return runs.judge()


_RATES = ("tokens_per_s_per_chip", "tflops_per_chip", "mfu_pct")


class _Said:
    """Values of the rows of MaxText's tables."""

    _NUMBERS = (
        *_RATES,
        *("n_chips", "slices", "seq_len", "per_device_batch", "ici_tensor_parallel"),
        *("hidden", "layers", "heads", "ffn"),
    )

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.numbers = {name: columns.numbers(name) for name in self._NUMBERS}

    def number(self, row: int, name: str, otherwise: int = 1) -> int:
        """A count; `otherwise` where the row does not say it."""
        value = float(self.numbers[name][row])
        return otherwise if np.isnan(value) else int(value)

    def batch(self, row: int, tokens: int) -> float:
        """Sequences per chip."""
        said = float(self.numbers["per_device_batch"][row])
        return said if said > 0 else max(_USUAL_TOKENS // tokens, 1)

    def is_measured(self, row: int) -> bool:
        """Whether a row gives a rate."""
        return any(self.numbers[name][row] > 0 for name in _RATES)

    def job(self, row: int) -> Job | str:
        """The run of a row, or why there is none."""
        chip, tokens = chip_of(self.columns["chip"][row]), self.number(row, "seq_len", 0)
        chips = self.number(row, "n_chips", 0)
        if chip is None or not (tokens and chips and self.is_measured(row)):
            return NO_TEMPLATE if chip is None else NO_SIZES
        dimensions = dimensions_of(self.columns["model"][row], tokens) or self.dimensions(row, tokens)
        if dimensions is None or self.columns["precision"][row] not in ("", "bf16"):
            return NO_MODEL if dimensions is None else UNKNOWN_FORMAT
        return Job(
            chip,
            built(dimensions, tokens),
            chips,
            self.number(row, "slices", least_slices(chip, chips)),
            self.batch(row, tokens),
            self.number(row, "ici_tensor_parallel"),
            self.columns["remat"][row],
        )

    def dimensions(self, row: int, tokens: int) -> dict[str, Any] | None:
        """Dimensions of a model that MaxText scales from its base; None where the row has none.

        Where a row says nothing of heads and feed-forward, they are the base's of 2023: heads of 256, one product
        into the feed-forward half; with them models have the parameters that their names say.
        """
        note = self.columns["arch_note"][row]
        if not self.number(row, "hidden", 0):
            return None
        gated, head = "gated" in note, re.search(r"head_dim (\d+)", note)
        return {
            **{name: self.number(row, name) for name in ("layers", "hidden", "heads")},
            "head_size": int(head[1]) if head else 256,
            "ffn_hidden": self.number(row, "ffn"),
            "vocabulary": 32000,
            "max_positions": tokens,
            "gated": gated,
            "activation": "silu" if gated else "relu",
            **_FORM,
        }

    def iteration_s(self, row: int, job: Job) -> float:
        """Measured time of an iteration: tokens over their rate, or FLOPs over theirs."""
        rate, tokens = self.numbers["tokens_per_s_per_chip"][row], job.workload.sequence_length or 1
        if not np.isnan(rate):
            return job.batch * tokens / float(rate)
        flop_per_s = self.numbers["tflops_per_chip"][row] * 1e12
        if np.isnan(flop_per_s):
            peak = peak_flops_per_s(to_table([job.chip]))[0]
            flop_per_s = self.numbers["mfu_pct"][row] / 100 * peak
        return job.batch * job.workload.chain(1, 1).model_flops / float(flop_per_s)


_FORM: Mapping[str, Any] = MappingProxyType(
    {
        "norm": "rms",
        "norm_place": "pre",
        "bias": False,
        "positions": "rope",
        "tied_embeddings": False,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
)


PARTED = "less than one sequence per chip: layout not given"


def recipe_training(columns: Columns) -> Judged:
    """Iterations of models whose dimensions the library has, in 16 bits."""
    runs = PublishedRuns()
    chips, length, step = (columns.numbers(name) for name in ("n_chips", "seq_len", "step_s"))
    batches, at_once = columns.numbers("global_batch"), columns.numbers("tokens_per_step")
    for row, (name, model, precision) in enumerate(
        zip(columns["chip"], columns["model"], columns["precision"], strict=True)
    ):
        samples = batches[row] if batches[row] > 0 else at_once[row] / length[row]
        if not (chips[row] > 0 and samples > 0 and step[row] > 0):
            runs.drop(NO_SIZES)
            continue
        chip, tokens, count = chip_of(name), int(length[row]), int(chips[row])
        dimensions = dimensions_of(model, tokens)
        if chip is None or dimensions is None:
            runs.drop(NO_TEMPLATE if chip is None else NO_MODEL)
        elif precision != "bf16" or samples < count:
            runs.drop(PARTED if precision == "bf16" else UNKNOWN_FORMAT)
        else:
            job = Job(
                chip,
                built(dimensions, tokens),
                count,
                slices=least_slices(chip, count),
                batch=round(samples / count),
                tensor=1,
                policy="",
            )
            run = job.run(float(step[row]))
            runs.drop(NO_NETWORK) if run is None else runs.keep(run)
    return runs.judge()
