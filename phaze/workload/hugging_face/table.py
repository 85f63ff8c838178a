"""Key names of Hugging Face configs: how each `model_type` becomes the dimensions of a family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from phaze.workload.families.registry import Family

ACTIVATIONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_tanh"), "gelu_tanh"),
        **dict.fromkeys(("silu", "swish"), "silu"),
        "gelu": "gelu",
        "relu": "relu",
    }
)
"""Names of activations there and here."""


@dataclass(frozen=True)
class Translation:
    """How one `model_type` becomes the dimensions of a family.

    `keys`: field of the family -> key of the config, which must be there. `optional`: the same, for keys that
    may be missing or null (the family's default then holds). `fixed`: fields that the type implies.
    `needs`: values that the config must have, missing keys included, for the family to describe it;
    `defaults`: what transformers takes for keys that are missing.
    """

    family: Family
    keys: Mapping[str, str]
    optional: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    needs: Mapping[str, Sequence[object]] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)


_STACK = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "vocabulary": "vocab_size",
    "max_positions": "max_position_embeddings",
}
_GPT2 = Translation(
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
_OPT = Translation(
    Family.DECODER,
    keys={**_STACK, "ffn_hidden": "ffn_dim"},
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
)
_LLAMA = Translation(
    Family.DECODER,
    keys={**_STACK, "ffn_hidden": "intermediate_size"},
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
_PHI3 = Translation(
    Family.DECODER,
    keys=_LLAMA.keys,
    optional={**_LLAMA.optional, "dropout": "resid_pdrop"},
    fixed=_LLAMA.fixed,
    defaults=_LLAMA.defaults,
)
_BERT = Translation(
    Family.ENCODER,
    keys={**_STACK, "ffn_hidden": "intermediate_size"},
    optional={
        "token_types": "type_vocab_size",
        "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={"norm": "layer", "norm_place": "post", "positions": "learned", "bias": True},
    needs={"is_decoder": (None, False), "position_embedding_type": (None, "absolute")},
    defaults={
        "hidden_act": "gelu",
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    },
)
_DISTILBERT = Translation(
    Family.ENCODER,
    keys={
        "layers": "n_layers",
        "hidden": "dim",
        "heads": "n_heads",
        "ffn_hidden": "hidden_dim",
        "vocabulary": "vocab_size",
        "max_positions": "max_position_embeddings",
    },
    optional={
        "activation": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed=_BERT.fixed,
    needs={"sinusoidal_pos_embds": (None, False)},
    defaults={"activation": "gelu", "dropout": 0.1, "attention_dropout": 0.1},
)

TRANSLATIONS: Mapping[str, Translation] = MappingProxyType(
    {
        "gpt2": _GPT2,
        "opt": _OPT,
        "llama": _LLAMA,
        "mistral": _LLAMA,
        "phi3": _PHI3,
        "bert": _BERT,
        "roberta": _BERT,
        "distilbert": _DISTILBERT,
    }
)
"""Translations by `model_type`."""
