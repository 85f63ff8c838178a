"""Decoders with a mixture of experts: Mixtral, Qwen3 and DeepSeek, the last with latent attention."""

from __future__ import annotations

from dataclasses import replace

from phaze.workload.hugging_face.decoders import LLAMA, QWEN3
from phaze.workload.hugging_face.translation import STACK, Translation

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


def _deepseek(scores: str, *, dense_layers: int, shared: int) -> Translation:
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
        },
        aliases={"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"},
    )


DEEPSEEK_V2 = _deepseek("softmax", dense_layers=0, shared=2)
DEEPSEEK_V3 = _deepseek("sigmoid", dense_layers=3, shared=1)
