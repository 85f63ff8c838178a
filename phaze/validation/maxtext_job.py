"""Runs of MaxText (JAX) on TPU slices as strategies: weights divided over a slice, replicas over slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from phaze.hardware.architecture import Architecture
from phaze.placement.cluster import Cluster, Recompute
from phaze.placement.strategy.framework import load_framework
from phaze.placement.strategy.needs import INPUT
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.validation.models import decoder
from phaze.validation.slices import slice_network
from phaze.validation.training import Run
from phaze.workload.sharding.parallel_degrees import Sharding
from phaze.workload.workload import Workload

FRAMEWORK = "maxtext-2024"

_PRODUCTS = frozenset({"qkv", "projection", "gate_up", "up", "down", "router"})


@dataclass(frozen=True, slots=True)
class Remat:
    """What a policy keeps on the device and in the memory of the host; the rest of a block runs again."""

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
"""What a run may have been whose policy is not given: the least recompute, or that of the published recipes."""


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
    def strategies(self) -> tuple[Strategy, ...]:
        """What the run may have been: one microbatch, weights divided over each slice, gradients over all."""
        replicas = self.chips // self.tensor
        policies = (POLICIES[self.policy],) if self.policy in POLICIES else _UNSAID
        return tuple(
            Strategy(
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

    def run(self, measured_s: float) -> Run | None:
        """The run with its measured iteration; None where the chip has no network."""
        network = slice_network(self.chip, self.chips // self.slices)
        if network is None:
            return None
        first, *others = self.strategies
        cluster = Cluster(self.chips, round(self.chips * self.batch), network)
        framework = load_framework(FRAMEWORK)
        return Run(self.chip, self.workload, cluster, framework, first, measured_s, others=tuple(others))


def built(dimensions: Mapping[str, Any], tokens: int) -> Workload:
    """A decoder as MaxText builds it."""
    framework = load_framework(FRAMEWORK)
    return decoder(dimensions, tokens, framework.attention, framework.fusion)
