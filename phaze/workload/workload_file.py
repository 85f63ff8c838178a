"""A workload file: what stands in the YAML, checked."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from phaze.errors import InputError
from phaze.workload.numerics import Optimizer, Precision
from phaze.yaml_file import checked, parse_yaml, read_yaml

# Strict: neither true nor 3.0 nor "3" is a number of things.
Count = Annotated[int, Field(strict=True, gt=0, le=10**9)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class Family(StrEnum):
    """Which graph the dimensions describe."""

    DECODER = "decoder"
    ENCODER = "encoder"


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


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class Dimensions(_Strict):
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
    token_types: Annotated[int, Field(strict=True, ge=0)] = 0
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


class ExpertPlan(_Strict):
    """Hand-made plan for 1024 devices: degrees."""

    pipeline: Count
    tensor: Count
    data: Count


class WorkloadSpec(_Strict):
    """One workload file. `source` says for each field (or group of fields) where its numbers are from."""

    schema_version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    family: Family
    source: Annotated[dict[str, str], Field(min_length=1)]
    dimensions: Dimensions
    sequence_length: Count
    global_batch: Count | None = None
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAM
    expert_plan: ExpertPlan | None = None

    @model_validator(mode="after")
    def _fits_positions(self) -> Self:
        """A sequence cannot be longer than the model's positions."""
        if self.sequence_length > self.dimensions.max_positions:
            limit = self.dimensions.max_positions
            msg = f"sequence_length {self.sequence_length} exceeds dimensions.max_positions {limit}"
            raise ValueError(msg)
        return self


def parse_spec(text: str, where: str) -> WorkloadSpec:
    """Read a workload file's text; `where` names the file in errors. Raises InputError."""
    return _spec(parse_yaml(text, where), where)


def read_spec(path: Path) -> WorkloadSpec:
    """Read a workload file. Raises InputError naming the file and what is wrong in it."""
    return _spec(read_yaml(path), str(path))


def _spec(data: object, where: str) -> WorkloadSpec:
    if not isinstance(data, dict):
        msg = f"{where}: expected a mapping with name, family, dimensions, ..., found {type(data).__name__}"
        raise InputError(msg)
    return checked(WorkloadSpec, data, where)
