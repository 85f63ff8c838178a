"""Dense decoders: GPT-2, OPT, BLOOM, Falcon, and Llama with its kin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from phaze.workload.families.registry import Family
from phaze.workload.hugging_face.translation import STACK, Config, Translation

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
