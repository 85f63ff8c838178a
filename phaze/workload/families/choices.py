"""Words by which a transformer's dimensions choose between forms of one part."""

from __future__ import annotations

from enum import StrEnum


class Activation(StrEnum):
    """Function between the two products of the feed-forward half."""

    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    GELU_NEW = "gelu_new"  # the same, written out operator by operator (Hugging Face)
    RELU = "relu"
    SILU = "silu"

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
    """Before each half of a block, or after its residual sum."""

    PRE = "pre"
    POST = "post"


class Positions(StrEnum):
    """How positions enter.

    A learned table added to the tokens; rotation of queries and keys (RoPE); a slope per head (ALiBi, arXiv
    2108.12409) or a learned table of distances (T5, arXiv 1910.10683) added to the scores; not at all.
    """

    LEARNED = "learned"
    ROPE = "rope"
    ALIBI = "alibi"
    RELATIVE = "relative"
    NONE = "none"


class Scores(StrEnum):
    """What turns a router's products into the weights of the experts."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
