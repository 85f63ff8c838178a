"""Decoders: GPT-2, OPT, BLOOM, Falcon, Llama with its kin; Mixtral, Qwen3 and DeepSeek with a mixture of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from phaze.workload.families.family_registry import Family
from phaze.workload.hugging_face.config_translation import STACK, Config, Translation

GPT2 = Translation(
    Family.DECODER,
    keys={
        "layers": "n_layer",
        "hidden": "n_embd",
        "heads": "n_head",
        "vocabulary": "vocab_size",
        "max_positions": "n_positions",
    },
    optional={
        "ffn_hidden": "n_inner",
        "activation": "activation_function",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={"norm": "layer", "norm_place": "pre", "positions": "learned", "bias": True},
    needs={"add_cross_attention": (None, False)},
    defaults={"activation_function": "gelu_new", "resid_pdrop": 0.1, "attn_pdrop": 0.1},
)


def _opt(config: Config, dimensions: dict[str, Any]) -> None:
    """Two rows come before the first position; the model of 350 M has norms after sums, and none at the end."""
    before = bool(config.get("do_layer_norm_before", True))
    dimensions["position_rows"] = dimensions["max_positions"] + 2
    dimensions["norm_place"] = "pre" if before else "post"
    dimensions["final_norm"] = before


OPT = Translation(
    Family.DECODER,
    keys={**STACK, "ffn_hidden": "ffn_dim"},
    optional={
        "embedding_size": "word_embed_proj_dim",
        "activation": "activation_function",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={"norm": "layer", "positions": "learned", "bias": True},
    needs={
        "enable_bias": (None, True),
        "layer_norm_elementwise_affine": (None, True),
        "_remove_final_layer_norm": (None, False),
    },
    defaults={"activation_function": "relu", "dropout": 0.1},
    adjust=_opt,
)
BLOOM = Translation(
    Family.DECODER,
    keys={"layers": "n_layer", "hidden": "hidden_size", "heads": "n_head", "vocabulary": "vocab_size"},
    optional={
        "max_positions": "seq_length",
        "dropout": "hidden_dropout",
        "attention_dropout": "attention_dropout",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={
        "activation": "gelu_tanh",
        "norm": "layer",
        "norm_place": "pre",
        "positions": "alibi",
        "embedding_norm": True,
        "bias": True,
    },
    needs={"apply_residual_connection_post_layernorm": (None, False)},
    defaults={"seq_length": 2048},  # as in training: slopes have no end
    aliases={"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
)
FALCON = Translation(  # the form of the model of 7 B
    Family.DECODER,
    keys={key: name for key, name in STACK.items() if key != "max_positions"},
    optional={
        "max_positions": "max_position_embeddings",
        "ffn_hidden": "ffn_hidden_size",
        "activation": "activation",
        "dropout": "hidden_dropout",
        "attention_dropout": "attention_dropout",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={"norm": "layer", "positions": "rope", "parallel": True, "kv_heads": 1, "bias": False},
    needs={
        "parallel_attn": (None, True),
        "multi_query": (None, True),
        "new_decoder_architecture": (None, False),
        "alibi": (None, False),
        "bias": (None, False),
    },
    defaults={"max_position_embeddings": 2048, "activation": "gelu"},
)
LLAMA = Translation(
    Family.DECODER,
    keys={**STACK, "ffn_hidden": "intermediate_size"},
    optional={
        "kv_heads": "num_key_value_heads",
        "head_size": "head_dim",
        "activation": "hidden_act",
        "attention_dropout": "attention_dropout",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={"gated": True, "norm": "rms", "norm_place": "pre", "positions": "rope", "bias": False},
    needs={"attention_bias": (None, False), "mlp_bias": (None, False)},
    defaults={"hidden_act": "silu", "tie_word_embeddings": False},
)
MISTRAL = replace(
    LLAMA,
    optional={**LLAMA.optional, "window": "sliding_window"},
    defaults={**LLAMA.defaults, "num_key_value_heads": 8, "sliding_window": 4096},
)
PHI3 = replace(
    LLAMA, optional={**LLAMA.optional, "window": "sliding_window", "dropout": "resid_pdrop"}, needs={}
)
QWEN2 = replace(
    LLAMA,
    fixed={**LLAMA.fixed, "qkv_bias": True},
    needs={"use_sliding_window": (None, False)},
    defaults={**LLAMA.defaults, "num_key_value_heads": 32},
)
QWEN3 = replace(
    LLAMA,
    fixed={**LLAMA.fixed, "qk_norm": True},
    needs={"attention_bias": (None, False), "use_sliding_window": (None, False)},
    defaults={**LLAMA.defaults, "num_key_value_heads": 32, "head_dim": 128},
)
GEMMA = replace(
    LLAMA,
    optional={field: key for field, key in LLAMA.optional.items() if field != "activation"},
    fixed={**LLAMA.fixed, "activation": "gelu_tanh"},
    needs={
        "attention_bias": (None, False),
        "hidden_act": (None, "gelu", "gelu_pytorch_tanh"),  # gelu is how older configs call the other
        "hidden_activation": (None, "gelu_pytorch_tanh"),
        "use_bidirectional_attention": (None, False),
    },
    defaults={"num_key_value_heads": 16, "head_dim": 256},
)


MIXTRAL = replace(
    LLAMA,
    keys={
        **STACK,
        "experts.hidden": "intermediate_size",
        "experts.number": "num_local_experts",
        "experts.per_token": "num_experts_per_tok",
    },
    optional={**LLAMA.optional, "window": "sliding_window"},
    needs={"router_jitter_noise": (None, 0)},
    defaults={**LLAMA.defaults, "num_key_value_heads": 8},
    aliases={"num_experts": "num_local_experts"},
)
QWEN3_MOE = replace(
    QWEN3,
    keys={
        **STACK,
        "experts.hidden": "moe_intermediate_size",
        "experts.number": "num_experts",
        "experts.per_token": "num_experts_per_tok",
    },
    needs={**QWEN3.needs, "decoder_sparse_step": (None, 1), "mlp_only_layers": (None, [])},
    defaults={**LLAMA.defaults, "num_key_value_heads": 4},
    aliases={"num_local_experts": "num_experts"},
)


def _deepseek(
    scores: str, *, dense_layers: int, shared: int, groups: tuple[int | None, int | None] = (None, None)
) -> Translation:
    """A version of DeepSeek, with what transformers takes where its config says nothing."""
    return replace(
        LLAMA,
        keys={
            **LLAMA.keys,
            "latent.kv_lora_rank": "kv_lora_rank",
            "latent.qk_nope_head_dim": "qk_nope_head_dim",
            "latent.qk_rope_head_dim": "qk_rope_head_dim",
            "latent.v_head_dim": "v_head_dim",
            "experts.hidden": "moe_intermediate_size",
            "experts.number": "n_routed_experts",
            "experts.per_token": "num_experts_per_tok",
        },
        optional={
            "latent.q_lora_rank": "q_lora_rank",
            "experts.shared": "n_shared_experts",
            "experts.dense_layers": "first_k_dense_replace",
            "experts.groups": "n_group",
            "experts.groups_per_token": "topk_group",
            "activation": "hidden_act",
            "attention_dropout": "attention_dropout",
            "tied_embeddings": "tie_word_embeddings",
        },
        fixed={**LLAMA.fixed, "experts.scores": scores},
        needs={**LLAMA.needs, "moe_layer_freq": (None, 1), "scoring_func": (None, scores)},
        defaults={
            **LLAMA.defaults,
            "q_lora_rank": 1536,
            "n_shared_experts": shared,
            "first_k_dense_replace": dense_layers,
            "n_group": groups[0],
            "topk_group": groups[1],
        },
        aliases={"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"},
    )


DEEPSEEK_V2 = _deepseek("softmax", dense_layers=0, shared=2)
DEEPSEEK_V3 = _deepseek("sigmoid", dense_layers=3, shared=1, groups=(8, 4))

_INDEXER = {f"indexer.{key}": key for key in ("index_n_heads", "index_head_dim", "index_topk")}
DEEPSEEK_V32 = replace(
    DEEPSEEK_V3,
    keys={**DEEPSEEK_V3.keys, **_INDEXER},
    needs={**DEEPSEEK_V3.needs, "indexer_types": (None,)},
)


def _glm_dsa(config: Config, dimensions: dict[str, Any]) -> None:
    """Which layers are dense may be listed: the first ones."""
    kinds = config.get("mlp_layer_types")
    if kinds:
        dimensions["experts.dense_layers"] = kinds.index("sparse")


GLM_DSA = replace(
    DEEPSEEK_V32,
    needs={**DEEPSEEK_V3.needs, "index_topk_freq": (None, 1)},
    defaults={**DEEPSEEK_V3.defaults, "q_lora_rank": 2048, "n_group": 1, "topk_group": 1},
    adjust=_glm_dsa,
)
