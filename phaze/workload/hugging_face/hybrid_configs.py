"""Decoders with a state in place of a cache: Qwen3-Next and 3.5, Mamba 2, Nemotron-H, Granite 4, Jamba, Falcon-H1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from phaze.workload.hugging_face.alternating_configs import turns
from phaze.workload.hugging_face.config_translation import STACK, Config
from phaze.workload.hugging_face.decoder_configs import LLAMA

_POSITIONS = {key: name for key, name in STACK.items() if key != "max_positions"}
_DELTA: Mapping[str, str] = MappingProxyType(
    {
        "delta.key_heads": "linear_num_key_heads",
        "delta.value_heads": "linear_num_value_heads",
        "delta.key_size": "linear_key_head_dim",
        "delta.value_size": "linear_value_head_dim",
    }
)


def _qwen3_next(config: Config, dimensions: dict[str, Any]) -> None:
    """Every fourth layer attends, unless the layers are named; shared experts are one, as wide as others."""
    named = {"linear_attention": "delta", "full_attention": "attention"}
    every = config.get("full_attention_interval", 4)
    found = config.get("layer_types")
    dimensions["mixers"] = (
        turns([named[kind] for kind in found]) if found else ["delta"] * (every - 1) + ["attention"]
    )
    shared, inside = config.get("shared_expert_intermediate_size"), dimensions.get("experts.hidden")
    if inside is not None:
        dimensions.setdefault("ffn_hidden", inside)
        if shared:
            dimensions |= {"experts.shared": shared // inside, "experts.shared_gate": True}


QWEN3_NEXT = replace(
    LLAMA,
    keys={
        **STACK,
        **_DELTA,
        "experts.hidden": "moe_intermediate_size",
        "experts.number": "num_experts",
        "experts.per_token": "num_experts_per_tok",
    },
    optional={**LLAMA.optional, "ffn_hidden": "intermediate_size"},
    fixed={**LLAMA.fixed, "qk_norm": True, "attention_gate": True},
    needs={
        "attention_bias": (None, False),
        "use_sliding_window": (None, False),
        "decoder_sparse_step": (None, 1),
        "mlp_only_layers": (None, []),
        "linear_conv_kernel_dim": (None, 4),
    },
    defaults={**LLAMA.defaults, "num_key_value_heads": 2, "head_dim": 256},
    aliases={"num_local_experts": "num_experts"},
    shared=("shared_expert_intermediate_size", "moe_intermediate_size"),
    adjust=_qwen3_next,
)
QWEN3_5 = replace(
    QWEN3_NEXT,
    keys={**STACK, **_DELTA, "ffn_hidden": "intermediate_size"},
    optional=LLAMA.optional,
    defaults={**LLAMA.defaults, "num_key_value_heads": 4, "head_dim": 256},
    aliases={},
)


def _mamba2(config: Config, dimensions: dict[str, Any]) -> None:
    """State-space layers alone; steps have no other positions."""
    dimensions |= {"heads": dimensions["mamba.heads"], "max_positions": 2**20}


MAMBA2 = replace(
    LLAMA,
    keys={
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "vocabulary": "vocab_size",
        "mamba.heads": "num_heads",
        "mamba.head_size": "head_dim",
        "mamba.state": "state_size",
    },
    optional={
        "mamba.groups": "n_groups",
        "mamba.chunk": "chunk_size",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={**LLAMA.fixed, "positions": "none", "activation": "silu", "mixers": ["mamba"], "feeds": ["none"]},
    needs={"use_bias": (None, False), "use_conv_bias": (None, True), "conv_kernel": (None, 4)},
    defaults={"tie_word_embeddings": False},
    adjust=_mamba2,
)

_NEMOTRON: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("M", "mamba", "linear_attention"), ("mamba", "none")),
        **dict.fromkeys(("*", "attention", "full_attention"), ("attention", "none")),
        **dict.fromkeys(("-", "mlp"), ("none", "mlp")),
        **dict.fromkeys(("E", "moe"), ("none", "experts")),
    }
)


def _nemotron_h(config: Config, dimensions: dict[str, Any]) -> None:
    """Layers of one half each, by letters or by names."""
    layers = config.get("hybrid_override_pattern") or config["layers_block_type"]
    kinds = [_NEMOTRON[kind] for kind in layers]
    dimensions |= {
        "layers": len(kinds),
        "mixers": [mixer for mixer, _ in kinds],
        "feeds": [feed for _, feed in kinds],
    }
    if ("none", "experts") not in kinds:
        return
    inside = config["moe_intermediate_size"]
    dimensions |= {
        "experts.number": config["n_routed_experts"],
        "experts.per_token": config["num_experts_per_tok"],
        "experts.hidden": inside,
        "experts.shared": config["moe_shared_expert_intermediate_size"] // inside,
        "experts.scores": "sigmoid",
    }


NEMOTRON_H = replace(
    LLAMA,
    keys={
        **{key: name for key, name in STACK.items() if key != "layers"},
        "ffn_hidden": "intermediate_size",
        "mamba.heads": "mamba_num_heads",
        "mamba.head_size": "mamba_head_dim",
        "mamba.state": "ssm_state_size",
        "mamba.groups": "n_groups",
    },
    optional={
        "kv_heads": "num_key_value_heads",
        "head_size": "head_dim",
        "activation": "mlp_hidden_act",
        "mamba.chunk": "chunk_size",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={**LLAMA.fixed, "gated": False, "positions": "none"},
    needs={
        "attention_bias": (None, False),
        "mlp_bias": (None, False),
        "use_bias": (None, False),
        "mamba_proj_bias": (None, False),
        "use_conv_bias": (None, True),
        "conv_kernel": (None, 4),
        "moe_latent_size": (None,),
    },
    defaults={
        "num_key_value_heads": 8,
        "head_dim": 128,
        "mlp_hidden_act": "relu2",
        "tie_word_embeddings": False,
    },
    aliases={"attention_head_dim": "head_dim", "mamba_n_groups": "n_groups"},
    shared=("moe_shared_expert_intermediate_size", "moe_intermediate_size"),
    adjust=_nemotron_h,
)


def _granite_hybrid(config: Config, dimensions: dict[str, Any]) -> None:
    """Experts with a shared half in every layer, or the shared half alone."""
    _head_of_mamba(config, dimensions)
    named = {"mamba": "mamba", "linear_attention": "mamba"}
    kinds = config.get("layer_types") or ["mamba"] * dimensions["layers"]
    dimensions["mixers"] = turns([named.get(kind, "attention") for kind in kinds])
    shared, number = config.get("shared_intermediate_size", 1024), config.get("num_local_experts", 8)
    if number:
        inside = dimensions["ffn_hidden"]
        dimensions |= {
            "experts.number": number,
            "experts.per_token": config.get("num_experts_per_tok", 2),
            "experts.hidden": inside,
            "experts.shared": shared // inside,
        }
    else:
        dimensions["ffn_hidden"] = shared
    if config.get("position_embedding_type") != "rope":
        dimensions["positions"] = "none"


GRANITE_HYBRID = replace(
    LLAMA,
    keys={
        **LLAMA.keys,
        "mamba.heads": "mamba_n_heads",
        "mamba.state": "mamba_d_state",
    },
    optional={
        **LLAMA.optional,
        "mamba.head_size": "mamba_d_head",
        "mamba.groups": "mamba_n_groups",
        "mamba.chunk": "mamba_chunk_size",
    },
    needs={
        **LLAMA.needs,
        "mamba_d_conv": (None, 4),
        "mamba_conv_bias": (None, True),
        "mamba_proj_bias": (None, False),
    },
    defaults={**LLAMA.defaults, "mamba_n_groups": 1, "shared_intermediate_size": 1024},
    shared=("shared_intermediate_size", "intermediate_size"),
    adjust=_granite_hybrid,
)


def _head_of_mamba(config: Config, dimensions: dict[str, Any]) -> None:
    """Elements of a head, which may be what the heads make of the widened model."""
    if dimensions.get("mamba.head_size", "auto") == "auto":
        width = config.get("mamba_d_ssm") or config.get("mamba_expand", 2) * dimensions["hidden"]
        dimensions["mamba.head_size"] = width // dimensions["mamba.heads"]


FALCON_H1 = replace(
    GRANITE_HYBRID,
    optional={**GRANITE_HYBRID.optional, "mamba.norm": "mamba_rms_norm"},
    fixed={**LLAMA.fixed, "mixers": ["beside"]},
    needs={**GRANITE_HYBRID.needs, "projectors_bias": (None, False)},
    defaults={**LLAMA.defaults, "mamba_rms_norm": False},
    adjust=_head_of_mamba,
)


def _jamba(config: Config, dimensions: dict[str, Any]) -> None:
    """One layer of so many attends, one of so many has experts."""
    layers = range(dimensions["layers"])
    every, first = config.get("attn_layer_period", 8), config.get("attn_layer_offset", 4)
    experts, start = config.get("expert_layer_period", 2), config.get("expert_layer_offset", 1)
    dimensions |= {
        "mixers": turns(["attention" if i % every == first else "mamba" for i in layers]),
        "feeds": turns(["experts" if i % experts == start else "mlp" for i in layers]),
        "mamba.heads": config.get("mamba_expand", 2) * dimensions["hidden"],
        "mamba.head_size": 1,
        "mamba.rank": config.get("mamba_dt_rank") or -(-dimensions["hidden"] // 16),
    }
    if dimensions["mamba.rank"] == "auto":
        dimensions["mamba.rank"] = -(-dimensions["hidden"] // 16)


JAMBA = replace(
    LLAMA,
    keys={
        **_POSITIONS,
        "ffn_hidden": "intermediate_size",
        "experts.hidden": "intermediate_size",
        "experts.number": "num_experts",
        "experts.per_token": "num_experts_per_tok",
        "mamba.state": "mamba_d_state",
    },
    optional={
        "max_positions": "max_position_embeddings",
        "kv_heads": "num_key_value_heads",
        "activation": "hidden_act",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={**LLAMA.fixed, "positions": "none"},
    needs={"mamba_d_conv": (None, 4), "mamba_conv_bias": (None, True), "mamba_proj_bias": (None, False)},
    defaults={**LLAMA.defaults, "max_position_embeddings": 262144, "num_key_value_heads": 8},
    aliases={"num_local_experts": "num_experts"},
    adjust=_jamba,
)
