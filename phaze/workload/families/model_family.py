"""Interface of every model family: dimensions that turn into a forward operator graph.

A model with two streams is a chain of layers as well: their tensors travel together from layer to layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.workload import Attention

# Strict: neither true nor 3.0 nor "3" is a number of things.
Count = Annotated[int, Field(strict=True, gt=0, le=10**9)]
CountOrNone = Annotated[int, Field(strict=True, ge=0, le=10**9)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class Strict(BaseModel):
    """A frozen part of a workload file; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, strict=False)


@dataclass(frozen=True, slots=True)
class Extent:
    """Extent of the input that goes through a model at once.

    `batch` samples. Of sequence models, `tokens` of each sample; `context` tokens of each sample went
    before and lie in the key-value cache (0: none). `cache`: how keys and values are kept for later tokens;
    None: they are not (training). `cache_format`: in which format; None: in that of the workload. Families without
    sequences, or without a cache, ignore what is not theirs.
    """

    batch: int
    tokens: int = 1
    context: int = 0
    cache: KvCache | None = None
    cache_format: CacheFormat | None = None


class FamilyDimensions(Strict, ABC):
    """Dimensions of one model of a family: the part `dimensions` of a workload file."""

    @property
    @abstractmethod
    def heads_to_divide(self) -> int | None:
        """Attention heads that tensor parallelism divides; None where there are none."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """Layers, as the family counts them."""

    @property
    @abstractmethod
    def longest_sequence(self) -> int | None:
        """Largest number of tokens of a sample; None where samples are no sequences of free length."""

    @property
    def repeats(self) -> Mapping[str, tuple[int, int]]:
        """Fields that say how often a block repeats: (a number from which each one more is alike, the number)."""
        return {}

    @property
    def period(self) -> int:
        """Blocks, of those that repeat, after which their kinds come again; every number of `repeats` is in step."""
        return 1

    @property
    def autoregressive(self) -> bool:
        """Whether the model makes one token after another, with the keys and values of earlier ones in a cache."""
        return False

    @abstractmethod
    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph at that extent, without a loss."""


def together(g: GraphBuilder, name: str, *tensors: str) -> tuple[str, ...]:
    """The tensors (batch, ...) of 16-bit elements as one for a moment, and apart again under new names.

    Nothing is computed; the model may be cut there.
    """
    shapes = [g.shape(tensor) for tensor in tensors]
    total = sum(prod(shape[1:]) for shape in shapes)
    joint = g.add(f"{name}.joint", OpKind.VIEW, tensors, (shapes[0][0], total))
    return g.split_into(f"{name}.apart", joint, {f"{name}.part{i}": s for i, s in enumerate(shapes, 1)})
