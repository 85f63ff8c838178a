"""Dimensions of a transformer stack."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.family import Count, CountOrNone, FamilyDimensions, Probability


class Activation(StrEnum):
    """Function between the two products of the feed-forward half."""

    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    RELU = "relu"
    SILU = "silu"


class NormKind(StrEnum):
    """Normalisation."""

    LAYER = "layer"
    RMS = "rms"


class NormPlace(StrEnum):
    """Before each half of a block, or after its residual sum."""

    PRE = "pre"
    POST = "post"


class Positions(StrEnum):
    """How positions enter: a learned table, or rotation of queries and keys."""

    LEARNED = "learned"
    ROPE = "rope"


class TransformerDimensions(FamilyDimensions):
    """Shape of a transformer stack.

    `kv_heads`, `head_size`, `ffn_hidden` and `embedding_size` default to `heads`, `hidden / heads`,
    4 x `hidden` and `hidden`. `position_rows` is the length of the learned table where it is longer than
    `max_positions` (OPT). `token_types` is BERT's segment table, 0 without one.
    """

    layers: Annotated[int, Field(strict=True, gt=0, le=10_000)]
    hidden: Count
    heads: Count
    vocabulary: Count
    max_positions: Count
    kv_heads: Count | None = None
    head_size: Count | None = None
    ffn_hidden: Count | None = None
    embedding_size: Count | None = None
    position_rows: Count | None = None
    token_types: CountOrNone = 0
    gated: bool = False
    activation: Activation = Activation.GELU
    norm: NormKind = NormKind.LAYER
    norm_place: NormPlace = NormPlace.PRE
    final_norm: bool = True
    bias: bool = True
    positions: Positions = Positions.LEARNED
    tied_embeddings: bool = True
    dropout: Probability = 0.0
    attention_dropout: Probability = 0.0

    @property
    def kv(self) -> int:
        """Key-value heads."""
        return self.kv_heads or self.heads

    @property
    def head(self) -> int:
        """Elements per head."""
        return self.head_size or self.hidden // self.heads

    @property
    def ffn(self) -> int:
        """Width of the feed-forward half."""
        return self.ffn_hidden or 4 * self.hidden

    @property
    def embedding(self) -> int:
        """Width of the token table."""
        return self.embedding_size or self.hidden

    @property
    def heads_to_divide(self) -> int:
        """Attention heads."""
        return self.heads

    @property
    def depth(self) -> int:
        """Transformer blocks."""
        return self.layers

    @property
    def longest_sequence(self) -> int:
        """Positions of the model."""
        return self.max_positions

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Reject dimensions that contradict each other."""
        if self.head_size is None and self.hidden % self.heads:
            msg = f"hidden ({self.hidden}) is not a multiple of heads ({self.heads}); give head_size"
            raise ValueError(msg)
        if self.heads % self.kv:
            msg = f"heads ({self.heads}) is not a multiple of kv_heads ({self.kv})"
            raise ValueError(msg)
        if self.positions is Positions.ROPE and self.head % 2:
            msg = f"positions: rope rotates pairs, but a head has {self.head} elements"
            raise ValueError(msg)
        if self.position_rows is not None and self.position_rows < self.max_positions:
            msg = f"position_rows ({self.position_rows}) is below max_positions ({self.max_positions})"
            raise ValueError(msg)
        if self.gated and self.activation is not Activation.SILU:
            msg = f"gated needs activation: silu, not {self.activation}"
            raise ValueError(msg)
        return self
