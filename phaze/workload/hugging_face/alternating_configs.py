"""Decoders whose blocks differ: gpt-oss, Gemma 3, Llama 4 with windows in turn; and GLM 4.5, MiniMax-M2, OLMo 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from phaze.workload.hugging_face.config_translation import STACK, Config
from phaze.workload.hugging_face.decoder_configs import LLAMA

_MIXERS: Mapping[str, str] = MappingProxyType(
    {
        "full_attention": "attention",
        "sliding_attention": "window",
        "chunked_attention": "window",
    }
)
"""Kinds of layers there and halves of blocks here; a chunk is taken as a window, which sees no less."""


def turns(kinds: Sequence[str]) -> list[str]:
    """The shortest run of kinds that, again and again, makes all of them."""
    for period in range(1, len(kinds)):
        if all(kind == kinds[i % period] for i, kind in enumerate(kinds)):
            return list(kinds[:period])
    return list(kinds)


def _in_turn(config: Config, dimensions: dict[str, Any], default: Sequence[str]) -> None:
    """First halves of the blocks by `layer_types`, or by default."""
    found = config.get("layer_types")
    mixers = turns([_MIXERS[kind] for kind in found]) if found else list(default)
    if "window" in mixers:
        dimensions["mixers"] = mixers
    else:
        dimensions.pop("window", None)


def _gpt_oss(config: Config, dimensions: dict[str, Any]) -> None:
    _in_turn(config, dimensions, ("window", "attention"))


def _gemma3(config: Config, dimensions: dict[str, Any]) -> None:
    every = config.get("sliding_window_pattern", 6)
    _in_turn(config, dimensions, ("window",) * (every - 1) + ("attention",))


def _llama4(config: Config, dimensions: dict[str, Any]) -> None:
    """Every so many layers have experts, the others a dense half that is wider than one."""
    _in_turn(config, dimensions, ("window",) * 3 + ("attention",))
    step = config.get("interleave_moe_layer_step", 1)
    if step > 1:
        dimensions["feeds"] = ["mlp"] * (step - 1) + ["experts"]


GPT_OSS = replace(
    LLAMA,
    keys={
        **LLAMA.keys,
        "experts.hidden": "intermediate_size",
        "experts.number": "num_local_experts",
        "experts.per_token": "num_experts_per_tok",
    },
    optional={**LLAMA.optional, "window": "sliding_window"},
    fixed={**LLAMA.fixed, "bias": True, "sinks": True, "experts.bias": True},
    needs={"attention_bias": (None, True)},
    defaults={**LLAMA.defaults, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128},
    aliases={"num_experts": "num_local_experts"},
    adjust=_gpt_oss,
)
GEMMA3 = replace(
    LLAMA,
    optional={
        **{field: key for field, key in LLAMA.optional.items() if field != "activation"},
        "window": "sliding_window",
    },
    fixed={**LLAMA.fixed, "activation": "gelu_tanh", "norm_place": "both", "qk_norm": True},
    needs={
        "attention_bias": (None, False),
        "hidden_activation": (None, "gelu_pytorch_tanh"),
        "attn_logit_softcapping": (None,),
        "final_logit_softcapping": (None,),
        "use_bidirectional_attention": (None, False),
    },
    defaults={"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096, "tie_word_embeddings": True},
    adjust=_gemma3,
)
LLAMA4 = replace(
    LLAMA,
    keys={
        **STACK,
        "ffn_hidden": "intermediate_size_mlp",
        "experts.hidden": "intermediate_size",
        "experts.number": "num_local_experts",
        "experts.per_token": "num_experts_per_tok",
    },
    optional={**LLAMA.optional, "window": "attention_chunk_size"},
    fixed={**LLAMA.fixed, "experts.shared": 1, "experts.scores": "sigmoid"},
    needs={"attention_bias": (None, False), "moe_layers": (None,)},
    defaults={**LLAMA.defaults, "num_key_value_heads": 8, "head_dim": 128, "attention_chunk_size": 8192},
    aliases={"num_experts": "num_local_experts"},
    adjust=_llama4,
)


def _glm4_moe(config: Config, dimensions: dict[str, Any]) -> None:
    """Heads of a width that no key tells are as wide as transformers makes them, whatever is left over."""
    dimensions.setdefault("head_size", config["hidden_size"] // config["num_attention_heads"])


GLM4_MOE = replace(
    LLAMA,
    keys={
        **LLAMA.keys,
        "experts.hidden": "moe_intermediate_size",
        "experts.number": "n_routed_experts",
        "experts.per_token": "num_experts_per_tok",
    },
    optional={
        **LLAMA.optional,
        "qkv_bias": "attention_bias",
        "qk_norm": "use_qk_norm",
        "experts.shared": "n_shared_experts",
        "experts.dense_layers": "first_k_dense_replace",
    },
    fixed={**LLAMA.fixed, "experts.scores": "sigmoid"},
    needs={},
    defaults={**LLAMA.defaults, "num_key_value_heads": 8, "n_shared_experts": 1, "first_k_dense_replace": 1},
    aliases={"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"},
    adjust=_glm4_moe,
)
MINIMAX_M2 = replace(
    LLAMA,
    keys={
        **LLAMA.keys,
        "experts.hidden": "intermediate_size",
        "experts.number": "num_local_experts",
        "experts.per_token": "num_experts_per_tok",
    },
    optional={**LLAMA.optional, "qk_norm_whole": "use_qk_norm"},
    fixed={**LLAMA.fixed, "experts.scores": "sigmoid"},
    needs={
        "attention_bias": (None, False),
        "qk_norm_type": (None, "per_layer"),
        "shared_intermediate_size": (None, 0),
        "scoring_func": (None, "sigmoid"),
    },
    defaults={**LLAMA.defaults, "use_qk_norm": True},
)
OLMO2 = replace(LLAMA, fixed={**LLAMA.fixed, "norm_place": "after", "qk_norm_whole": True})
GRANITE = LLAMA
"""Multipliers of embeddings, scores, sums and logits cost nothing beside what they multiply."""
