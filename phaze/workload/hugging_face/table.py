"""The types of Hugging Face configs that a family describes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from phaze.workload.hugging_face.decoders import (
    BLOOM,
    FALCON,
    GEMMA,
    GPT2,
    LLAMA,
    MISTRAL,
    OPT,
    PHI3,
    QWEN2,
    QWEN3,
)
from phaze.workload.hugging_face.encoders import BERT, DISTILBERT, ROBERTA, T5, VIT
from phaze.workload.hugging_face.mixtures import DEEPSEEK_V2, DEEPSEEK_V3, MIXTRAL, QWEN3_MOE
from phaze.workload.hugging_face.translation import Translation

TRANSLATIONS: Mapping[str, Translation] = MappingProxyType(
    {
        "bert": BERT,
        "bloom": BLOOM,
        "deepseek_v2": DEEPSEEK_V2,
        "deepseek_v3": DEEPSEEK_V3,
        "distilbert": DISTILBERT,
        "falcon": FALCON,
        "gemma": GEMMA,
        "gpt2": GPT2,
        "llama": LLAMA,
        "mistral": MISTRAL,
        "mixtral": MIXTRAL,
        "opt": OPT,
        "phi3": PHI3,
        "qwen2": QWEN2,
        "qwen3": QWEN3,
        "qwen3_moe": QWEN3_MOE,
        "roberta": ROBERTA,
        "t5": T5,
        "vit": VIT,
    }
)
"""Translations by `model_type`."""
