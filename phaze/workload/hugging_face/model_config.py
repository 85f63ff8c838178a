"""Hugging Face models by their `config.json`, without transformers and without weights, and the types in the table.

Types that a family describes exactly are translated here; all others are left to `meta_device_build.py`, which
builds the model itself.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phaze.errors import InputError, Remark
from phaze.text_file import MIB, read_text
from phaze.workload.hugging_face.alternating_configs import (
    GEMMA3,
    GLM4_MOE,
    GPT_OSS,
    GRANITE,
    LLAMA4,
    MINIMAX_M2,
    OLMO2,
)
from phaze.workload.hugging_face.config_translation import ACTIVATIONS, Config, Translation
from phaze.workload.hugging_face.decoder_configs import (
    BLOOM,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    FALCON,
    GEMMA,
    GLM_DSA,
    GPT2,
    LLAMA,
    MISTRAL,
    MIXTRAL,
    OPT,
    PHI3,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
)
from phaze.workload.hugging_face.encoder_configs import BERT, DISTILBERT, ROBERTA, T5, VIT
from phaze.workload.hugging_face.hybrid_configs import (
    FALCON_H1,
    GRANITE_HYBRID,
    JAMBA,
    MAMBA2,
    NEMOTRON_H,
    QWEN3_5,
    QWEN3_NEXT,
)

TRANSLATIONS: Mapping[str, Translation] = MappingProxyType(
    {
        "bert": BERT,
        "bloom": BLOOM,
        "deepseek_v2": DEEPSEEK_V2,
        "deepseek_v3": DEEPSEEK_V3,
        "deepseek_v32": DEEPSEEK_V32,
        "distilbert": DISTILBERT,
        "falcon": FALCON,
        "falcon_h1": FALCON_H1,
        "gemma": GEMMA,
        "gemma3_text": GEMMA3,
        "glm4_moe": GLM4_MOE,
        "glm_moe_dsa": GLM_DSA,
        "gpt2": GPT2,
        "gpt_oss": GPT_OSS,
        "granite": GRANITE,
        "granitemoehybrid": GRANITE_HYBRID,
        "jamba": JAMBA,
        "llama": LLAMA,
        "llama4_text": LLAMA4,
        "mamba2": MAMBA2,
        "minimax_m2": MINIMAX_M2,
        "mistral": MISTRAL,
        "mixtral": MIXTRAL,
        "nemotron_h": NEMOTRON_H,
        "olmo2": OLMO2,
        "opt": OPT,
        "phi3": PHI3,
        "qwen2": QWEN2,
        "qwen3": QWEN3,
        "qwen3_5_moe_text": QWEN3_NEXT,
        "qwen3_5_text": QWEN3_5,
        "qwen3_moe": QWEN3_MOE,
        "qwen3_next": QWEN3_NEXT,
        "roberta": ROBERTA,
        "t5": T5,
        "vit": VIT,
    }
)
"""Translations by `model_type`."""

WITH_OTHER_SENSES = frozenset({"llama4", "qwen3_5", "qwen3_5_moe"})
"""Types that see images, too: what is read is the language model among their parts, `text_config`."""


LARGEST_BYTES = 16 * MIB


def config_file(source: str) -> Path:
    """The `config.json` behind a path to it or to the folder that holds it."""
    path = Path(source)
    return path / "config.json" if path.is_dir() else path


def read_config(source: str) -> dict[str, Any]:
    """Read a `config.json`. Raises InputError for a file that is missing, no JSON, or names no `model_type`."""
    path = config_file(source)
    if not path.exists():
        raise InputError(
            f"{path}: no such file; hf: takes a config.json, or a folder that holds one, and reads nothing from a "
            "network: download the model's config.json first"
        )
    try:
        config = json.loads(read_text(path, LARGEST_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise InputError(f"{path}: model_type is missing: not the config of a Hugging Face model")
    return config


def translate(config: Config, where: str) -> dict[str, Any] | None:
    """Content of a workload file that describes the same model; None where no family does exactly.

    `where` names the config in errors. Raises InputError for keys that are missing (all of them at once),
    values of the wrong type and an activation that is unknown.
    """
    config = _language_model(config, where)
    entry = TRANSLATIONS.get(config["model_type"])
    if entry is None:
        return None
    config = entry.renamed(config)
    if entry.beyond(config):
        return None
    dimensions = _dimensions(entry, config, where)
    content = {
        "schema_version": 1,
        "name": config_name(config, where),
        "family": entry.family.value,
        "source": {"dimensions": where},
        "dimensions": _nested(dimensions),
    }
    positions = dimensions.get("max_positions")
    return content if positions is None else {**content, "sequence_length": positions}


def _language_model(config: Config, where: str) -> Config:
    """The language model of one that sees images, with a remark; any other as it is."""
    inner = config.get("text_config")
    if config["model_type"] not in WITH_OTHER_SENSES or not isinstance(inner, Mapping):
        return config
    msg = f"{where}: of {config['model_type']} the language model is taken (text_config), without its vision tower"
    warnings.warn(msg, Remark, stacklevel=3)
    whole = {key: config[key] for key in ("tie_word_embeddings", "_name_or_path") if key in config}
    return {**whole, "model_type": f"{config['model_type']}_text", **inner}


def why_not(config: Config) -> str:
    """Why `translate` has no answer: an unknown type, or the keys that ask for more than its family has."""
    kind = config["model_type"]
    if kind not in TRANSLATIONS:
        return f"model_type {kind!r} is none that is read as it is ({', '.join(TRANSLATIONS)})"
    entry = TRANSLATIONS[kind]
    beyond = ", ".join(entry.beyond(entry.renamed(config)))
    return f"model_type {kind!r} is read as it is, but not with {beyond}"


def _dimensions(entry: Translation, config: Config, where: str) -> dict[str, Any]:
    """Fields of the family, those of its parts with a dot."""
    missing = [key for key in entry.keys.values() if config.get(key) is None]
    if missing:
        raise InputError(f"{where}: model_type {config['model_type']} needs {', '.join(missing)}")
    known = {**entry.defaults, **config}
    found = {name: known.get(key) for name, key in {**entry.optional, **entry.keys}.items()}
    dimensions = {**entry.fixed, **{name: value for name, value in found.items() if value is not None}}
    try:
        entry.adjust(config, dimensions)
    except (AttributeError, KeyError, TypeError) as error:
        msg = f"{where}: a key is missing, or has a value of the wrong type or kind ({error})"
        raise InputError(msg) from error
    given = dimensions.get("activation")
    activation = ACTIVATIONS.get(str(given))
    if activation is None:
        listed = ", ".join(sorted(ACTIVATIONS))
        raise InputError(f"{where}: activation {given!r} is not known (known: {listed})")
    dimensions["activation"] = activation
    return dimensions


def _nested(dimensions: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with a dot gathered into the parts that they name."""
    whole: dict[str, Any] = {}
    for name, value in dimensions.items():
        part, dot, field = name.partition(".")
        if dot:
            whole.setdefault(part, {})[field] = value
        else:
            whole[name] = value
    return whole


_DEPTHS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers")
_WIDTHS = ("hidden_size", "n_embd", "d_model")


def _sized(config: Config, kind: str) -> str:
    """Type of a model with its depth and width, as far as the config tells both: `llama-32x4096`."""
    depth, width = (next((config[k] for k in keys if k in config), None) for keys in (_DEPTHS, _WIDTHS))
    return kind if depth is None or width is None else f"{kind}-{depth}x{width}"


def config_name(config: Config, where: str) -> str:
    """Name of the model: its own path's last part, the folder where that speaks of its type, or its type and size."""
    given = str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    folder, kind = Path(where).resolve().parent.name, str(config["model_type"])
    told = re.match("[a-z]*", kind.lower())
    name = given or (folder if told and told[0] and told[0] in folder.lower() else _sized(config, kind))
    return (
        "".join(c if c.isalnum() or c in "._-" else "-" for c in name).lstrip("._-") or config["model_type"]
    )
