"""What a row of a training run states: model, degrees and batch; made into a workload, a cluster and a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

from phaze.placement.cluster import Cluster
from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.strategy import Strategy
from phaze.validation.columns import Columns
from phaze.validation.models import gpt
from phaze.validation.systems import network_of
from phaze.workload.sharding.parallel_degrees import Sharding
from phaze.workload.workload import Workload

MEGATRON: Mapping[str, str] = {
    "layers": "layers",
    "hidden": "hidden",
    "heads": "heads",
    "vocabulary": "vocab",
    "tokens": "seq_len",
    "tensor": "tp",
    "stages": "pp",
    "devices": "n_gpus",
    "batch": "global_batch",
}
"""Columns of the tables about Megatron-LM, by what they hold."""


@dataclass(frozen=True, slots=True)
class Stated:
    """Dimensions of a GPT, tensor- and pipeline-parallel degrees, devices and global batch."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    tokens: int
    tensor: int
    stages: int
    devices: int
    batch: int

    @classmethod
    def of(cls, columns: Columns, row: int, names: Mapping[str, str] = MEGATRON) -> Stated:
        """The numbers of one row, found in the columns of these names."""
        return cls(**{field: int(columns.numbers(name)[row]) for field, name in names.items()})

    @property
    def replicas(self) -> int:
        """Data-parallel degree."""
        return self.devices // (self.tensor * self.stages)

    @property
    def share(self) -> int:
        """Samples of an iteration on one replica."""
        return self.batch // self.replicas

    def workload(
        self, framework: Framework, precision: str = "fp16", layers: int | None = None, *, tied: bool = True
    ) -> Workload:
        """The model as a framework runs it, or one of so many layers."""
        sizes = (layers or self.layers, self.hidden, self.heads, self.vocabulary, self.tokens)
        return gpt(*sizes, framework.attention, framework.fusion, precision, tied=tied)

    def cluster(self, network: str) -> Cluster:
        """All its devices on a network by name."""
        return Cluster(self.devices, self.batch, network_of(network))

    def strategy(self, microbatch: int, chunks: int = 1, *, sequence: bool = False) -> Strategy:
        """The degrees with a microbatch and so many parts of the model on each device."""
        return Strategy(
            microbatch=microbatch,
            data_parallel=self.replicas,
            pipeline_parallel=self.stages,
            sharding=Sharding(self.tensor, sequence=sequence),
            schedule=Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_F_ONE_B,
            chunks=chunks,
        )

    def choices(self, microbatches: tuple[int, ...]) -> list[tuple[int, int]]:
        """Microbatch and chunks per device that the batch and the layers allow, where a row states neither."""
        fitting = (b for b in microbatches if self.share % b == 0)
        return [(b, chunks) for b in fitting for chunks in self._interleavings(self.share // b)]

    def _interleavings(self, microbatches: int) -> list[int]:
        """Even parts of whole layers; more than one on a device needs rounds of as many microbatches as stages."""
        if self.stages == 1 or microbatches % self.stages:
            return [1]
        each = self.layers // self.stages
        return [chunks for chunks in range(1, each + 1) if self.layers % (self.stages * chunks) == 0]


def whole(number: float, otherwise: int) -> int:
    """A number of a table, or another where the cell is empty."""
    return otherwise if isnan(number) else int(number)
