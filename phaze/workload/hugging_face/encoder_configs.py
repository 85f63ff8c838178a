"""Encoders of text and images, and encoder-decoders: BERT, RoBERTa, DistilBERT, ViT, T5."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from phaze.workload.families.family_registry import Family
from phaze.workload.hugging_face.config_translation import STACK, Config, Translation

BERT = Translation(
    Family.ENCODER,
    keys={**STACK, "ffn_hidden": "intermediate_size"},
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


def _roberta(config: Config, dimensions: dict[str, Any]) -> None:
    """Positions count from the padding id + 1, which is 2."""
    dimensions["position_rows"] = dimensions["max_positions"]
    dimensions["max_positions"] -= 2


ROBERTA = replace(BERT, adjust=_roberta)
DISTILBERT = Translation(
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
    fixed=BERT.fixed,
    needs={"sinusoidal_pos_embds": (None, False)},
    defaults={"activation": "gelu", "dropout": 0.1, "attention_dropout": 0.1},
)


def _vit(config: Config, dimensions: dict[str, Any]) -> None:
    """Classes are counted by their names; two where there are none."""
    dimensions["classes"] = len(config.get("id2label") or ()) or config.get("num_labels") or 2


class _Number:
    """All whole numbers; a size that is one of them is that of a square."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int)


VIT = Translation(
    Family.VIT,
    keys={
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "ffn_hidden": "intermediate_size",
        "image": "image_size",
        "patch": "patch_size",
    },
    optional={
        "channels": "num_channels",
        "activation": "hidden_act",
        "qkv_bias": "qkv_bias",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
    },
    fixed={"norm": "layer", "norm_place": "pre", "positions": "learned", "bias": True},
    needs={
        "architectures": (None, ["ViTForImageClassification"]),
        "image_size": _Number(),
        "patch_size": _Number(),
    },
    defaults={"hidden_act": "gelu"},
    adjust=_vit,
)


def _t5(config: Config, dimensions: dict[str, Any]) -> None:
    """The activation's name tells whether it gates; `gated-gelu` stands for the approximation by tanh."""
    form = dimensions["activation"]
    dimensions["gated"] = form.startswith("gated-")
    dimensions["activation"] = "gelu_new" if form == "gated-gelu" else form.removeprefix("gated-")


T5 = Translation(
    Family.ENCODER_DECODER,
    keys={
        "layers": "num_layers",
        "hidden": "d_model",
        "heads": "num_heads",
        "head_size": "d_kv",
        "ffn_hidden": "d_ff",
        "vocabulary": "vocab_size",
    },
    optional={
        "decoder_layers": "num_decoder_layers",
        "max_positions": "n_positions",
        "position_buckets": "relative_attention_num_buckets",
        "activation": "feed_forward_proj",
        "dropout": "dropout_rate",
        "attention_dropout": "dropout_rate",
        "tied_embeddings": "tie_word_embeddings",
    },
    fixed={"norm": "rms", "norm_place": "pre", "positions": "relative", "bias": False},
    needs={"is_encoder_decoder": (None, True)},
    defaults={"feed_forward_proj": "relu", "dropout_rate": 0.1, "n_positions": 512},
    adjust=_t5,
)
