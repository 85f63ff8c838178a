"""Models of published runs, built from the dimensions that their rows give."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import lru_cache
from typing import Any

from phaze.workload.fusion_rules import Fusion
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_loader import LoadOptions, workload_of


@lru_cache(maxsize=256)
def gpt(
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    tokens: int,
    attention: Attention = Attention.UNFUSED,
    fusion: frozenset[Fusion] = frozenset(),
    precision: str = "fp16",
    dropout: float = 0.1,
    recipe: Recipe | None = None,
    tied: bool = True,
    activation: str = "gelu_tanh",
) -> Workload:
    """A GPT as Megatron-LM builds it: learned positions, pre-norm, biases; `tied` logits and embeddings or not."""
    dimensions = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "ffn_hidden": 4 * hidden,
        "vocabulary": vocabulary,
        "max_positions": tokens,
        "activation": activation,
        "norm": "layer",
        "norm_place": "pre",
        "bias": True,
        "positions": "learned",
        "tied_embeddings": tied,
        "dropout": dropout,
        "attention_dropout": dropout,
    }
    return decoder(dimensions, tokens, attention, fusion, precision, recipe=recipe)


def decoder(
    dimensions: Mapping[str, Any],
    tokens: int,
    attention: Attention,
    fusion: Set[Fusion],
    precision: str = "bf16",
    mode: Mode = Mode.TRAINING,
    recipe: Recipe | None = None,
) -> Workload:
    """A decoder of the dimensions that a workload file has (docs/reference/workload-file.md)."""
    content = {
        "schema_version": 1,
        "name": "measured",
        "family": "decoder",
        "source": {"dimensions": "a measured run"},
        "dimensions": dict(dimensions),
        "sequence_length": tokens,
        "precision": precision,
    }
    options = LoadOptions(mode, attention, fusion=frozenset(fusion), recipe=recipe)
    return workload_of(content, "measured", options)
