"""Dimensions of transformers: the stack of blocks, its tables, how positions enter, and choices between forms."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.model_family import Count, CountOrNone, FamilyDimensions, Probability


class Activation(StrEnum):
    """Function between the two products of the feed-forward half."""

    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    GELU_NEW = "gelu_new"  # the same, written out operator by operator (Hugging Face)
    RELU = "relu"
    SILU = "silu"
    RELU2 = "relu2"  # squared (Primer, arXiv 2109.08668; Nemotron)

    @property
    def gate(self) -> str:
        """Element-wise function of a gated half: activation of the gate, times the other product."""
        names = {Activation.GELU: "geglu", Activation.RELU: "reglu", Activation.SILU: "swiglu"}
        return names.get(self, "geglu_tanh")


class NormKind(StrEnum):
    """Normalisation."""

    LAYER = "layer"
    RMS = "rms"


class NormPlace(StrEnum):
    """Before each half of a block, after its residual sum, before and after the half, or after the half alone."""

    PRE = "pre"
    POST = "post"
    BOTH = "both"  # Gemma 2 and 3 (arXiv 2408.00118, table 1)
    AFTER = "after"  # OLMo 2 (arXiv 2501.00656, section 3.3)


class Positions(StrEnum):
    """Position encoding.

    A learned table added to the tokens; rotation of queries and keys (RoPE); a slope per head (ALiBi, arXiv
    2108.12409) or a learned table of distances (T5, arXiv 1910.10683) added to the scores; not at all.
    """

    LEARNED = "learned"
    ROPE = "rope"
    ALIBI = "alibi"
    RELATIVE = "relative"
    NONE = "none"


class Scores(StrEnum):
    """Function that turns a router's products into the weights of the experts."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


Depth = Annotated[int, Field(strict=True, gt=0, le=5_000)]


class StackDimensions(FamilyDimensions):
    """Shape of the blocks.

    `kv_heads`, `head_size` and `ffn_hidden` default to `heads`, `hidden / heads` and 4 x `hidden`.
    """

    layers: Annotated[Depth, Field(description="transformer blocks")]
    hidden: Annotated[Count, Field(description="width of the residual stream")]
    heads: Annotated[Count, Field(description="attention heads; the tensor-parallel width divides them")]
    kv_heads: Annotated[
        Count | None,
        Field(description="heads of keys and values: 1 multi-query, else grouped (default: heads)"),
    ] = None
    head_size: Annotated[Count | None, Field(description="elements per head (default: hidden / heads)")] = (
        None
    )
    ffn_hidden: Annotated[
        Count | None, Field(description="width of the feed-forward half (default: 4 x hidden)")
    ] = None
    gated: Annotated[
        bool, Field(description="a second product gates the activation (SwiGLU, GeGLU, ReGLU)")
    ] = False
    activation: Annotated[Activation, Field(description="gelu, gelu_tanh, gelu_new, relu or silu")] = (
        Activation.GELU
    )
    joint_products: Annotated[
        bool,
        Field(
            description="one product makes queries, keys and values, and one both halves of a gated feed-forward"
        ),
    ] = True
    norm: Annotated[NormKind, Field(description="layer or rms")] = NormKind.LAYER
    norm_shift: Annotated[bool, Field(description="layer norms have a shift beside their scale")] = True
    norm_place: Annotated[
        NormPlace,
        Field(
            description="before each half of a block (pre), after its sum (post), before and after the half (both), "
            "or after the half alone (after)"
        ),
    ] = NormPlace.PRE
    qk_norm: Annotated[bool, Field(description="a norm of every head's queries and keys")] = False
    qk_norm_whole: Annotated[
        bool,
        Field(description="a norm of all heads' queries at once, and one of their keys (OLMo 2, MiniMax-M2)"),
    ] = False
    attention_gate: Annotated[
        bool, Field(description="queries bring a gate of the mixed values along (Qwen3-Next)")
    ] = False
    sinks: Annotated[
        bool, Field(description="a learned score of every head beside those of its keys (gpt-oss)")
    ] = False
    bias: Annotated[bool, Field(description="biases in the products")] = True
    qkv_bias: Annotated[
        bool | None, Field(description="biases of queries, keys and values (default: as bias)")
    ] = None
    positions: Annotated[
        Positions,
        Field(description="learned (a table), rope, alibi, relative (T5's table of distances) or none"),
    ] = Positions.LEARNED
    position_buckets: Annotated[Count, Field(description="distances that a relative table tells apart")] = 32
    window: Annotated[
        Count | None, Field(description="keys that a query sees, itself included (default: all)")
    ] = None
    dropout: Annotated[Probability, Field(description="after each half of a block")] = 0.0
    attention_dropout: Annotated[Probability, Field(description="of the attention weights")] = 0.0

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
    def rotated(self) -> int:
        """Elements per head that rotation turns."""
        return self.head

    @property
    def query_bias(self) -> bool:
        """Whether queries, keys and values have biases."""
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def heads_to_divide(self) -> int:
        """Attention heads."""
        return self.heads

    @property
    def depth(self) -> int:
        """Transformer blocks."""
        return self.layers

    @property
    def repeats(self) -> Mapping[str, tuple[int, int]]:
        """All blocks are alike."""
        return {"layers": (1, self.layers)}

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        """Reject heads that do not divide what they share."""
        if self.head_size is None and self.hidden % self.heads:
            msg = f"hidden ({self.hidden}) is not a multiple of heads ({self.heads}); give head_size"
            raise ValueError(msg)
        if self.heads % self.kv:
            msg = f"heads ({self.heads}) is not a multiple of kv_heads ({self.kv})"
            raise ValueError(msg)
        if self.positions is Positions.ROPE and self.rotated % 2:
            msg = f"positions: rope rotates pairs, but a head has {self.rotated} elements"
            raise ValueError(msg)
        return self


class TransformerDimensions(StackDimensions):
    """Shape of a transformer over tokens.

    `embedding_size` defaults to `hidden`. `position_rows` is the length of the learned table where it is
    longer than `max_positions` (OPT). `token_types` is BERT's segment table, 0 without one.
    """

    vocabulary: Annotated[Count, Field(description="rows of the token table")]
    max_positions: Annotated[Count, Field(description="no sequence may be longer")]
    embedding_size: Annotated[
        Count | None, Field(description="width of the token table (default: hidden)")
    ] = None
    embedding_norm: Annotated[bool, Field(description="a norm after the token table (BLOOM)")] = False
    position_rows: Annotated[
        Count | None, Field(description="rows of a learned table (default: max_positions)")
    ] = None
    token_types: Annotated[CountOrNone, Field(description="rows of a segment table (BERT), 0 for none")] = 0
    final_norm: Annotated[bool, Field(description="a norm after the last block, with norm_place pre")] = True
    tied_embeddings: Annotated[bool, Field(description="one table for input and output")] = True

    @property
    def embedding(self) -> int:
        """Width of the token table."""
        return self.embedding_size or self.hidden

    @property
    def longest_sequence(self) -> int:
        """Positions of the model."""
        return self.max_positions

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        """Reject a table that is too short."""
        if self.position_rows is not None and self.position_rows < self.max_positions:
            msg = f"position_rows ({self.position_rows}) is below max_positions ({self.max_positions})"
            raise ValueError(msg)
        return self
