"""Models of published runs: by the dimensions that their rows give, or by name alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from phaze.workload.fusion_rules import Fusion
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_library import builtin_spec
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


_SAME: Mapping[str, Any] = MappingProxyType({})
# Published configuration Qwen3-235B-A22B.
_QWEN3_235B: Mapping[str, Any] = MappingProxyType(
    {
        **{"layers": 94, "hidden": 4096, "heads": 64, "kv_heads": 4, "head_size": 128, "vocabulary": 151936},
        "experts": {"number": 128, "per_token": 8, "hidden": 1536},
    }
)
# Llama 2 (arXiv 2307.09288): 70B has the dimensions of Llama 3 70B, but for its vocabulary.
_LLAMA2_13B: Mapping[str, Any] = MappingProxyType(
    {"layers": 40, "hidden": 5120, "heads": 40, "kv_heads": 40, "ffn_hidden": 13824}
)
_LLAMA2_70B: Mapping[str, Any] = MappingProxyType({"vocabulary": 32000})

# Name in a row, workload of the library, and what is different of it. Llama 3.1 has the dimensions of Llama 3.
_MODELS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("LLAMA ?2 7B", "llama2-7b", _SAME),
    ("LLAMA ?2 13B", "llama2-7b", _LLAMA2_13B),
    ("LLAMA ?2 70B", "llama3-70b", _LLAMA2_70B),
    ("LLAMA ?3(\\.1)? 8B", "llama3-8b", _SAME),
    ("LLAMA ?3(\\.1)? 70B", "llama3-70b", _SAME),
    ("LLAMA ?3(\\.1)? 405B", "llama3-405b", _SAME),
    ("MISTRAL 7B", "mistral-7b", _SAME),
    ("MIXTRAL 8X7B", "mixtral-8x7b", _SAME),
    ("MIXTRAL 8X22B", "mixtral-8x22b", _SAME),
    ("QWEN ?3 235B.*", "qwen3-8b", _QWEN3_235B),
    ("DEEPSEEK ?V?3( 671B)?", "deepseek-v3", _SAME),
    ("GPT ?3 ?(175B)?", "gpt3", _SAME),
)


def dimensions_of(name: str, tokens: int) -> dict[str, Any] | None:
    """Dimensions of a decoder for sequences of so many tokens; None where the library has no such model."""
    plain = re.sub(r"[\s_-]+", " ", name).upper()
    for pattern, known, changes in _MODELS:
        if re.fullmatch(pattern, plain):
            own = builtin_spec(known).dimensions.model_dump(exclude_none=True)
            reach = max(tokens, own["max_positions"])
            return {**own, **changes, "max_positions": reach}
    return None
