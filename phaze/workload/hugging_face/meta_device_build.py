"""Hugging Face models that no family describes: built by transformers on the meta device, and recorded."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from phaze.errors import InputError
from phaze.workload.hugging_face.model_config import config_file, config_name, why_not
from phaze.workload.torch_export.exported_model import ExportedModel
from phaze.workload.torch_export.torch_tracing import record, require_torch

Module = Any  # a class or object of transformers, which is optional

DEFAULT_TOKENS = 2048  # of a sample, where the config does not tell its positions
_POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")


def build(
    source: str, config: Mapping[str, Any], sequence_length: int | None
) -> tuple[ExportedModel, int | None]:
    """The model of a config, and its tokens per sample (None for images).

    The class is the config's `architectures`, or the one with a head for its type. Dropout inside attention is
    off: the model is recorded as in evaluation, where transformers has no random branches. Raises InputError
    where torch or transformers are missing, the type is unknown to them, or the model cannot be recorded.
    """
    path = config_file(source)
    transformers = _require_transformers(path, config)
    torch = require_torch()
    try:
        settings = transformers.AutoConfig.from_pretrained(str(path.parent), local_files_only=True)
        settings.use_cache = False
        with torch.device("meta"):
            module = _model_class(transformers, config, settings)(settings).eval()
    except (OSError, ValueError, TypeError, AttributeError, LookupError, ImportError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"{path}: {why_not(config)}; transformers cannot build it: {reason}") from error
    tokens = sequence_length or _positions(config)
    inputs = _inputs(torch, module, config, tokens, path)
    try:
        model = record(module, (), inputs, config_name(config, str(path)))
    except InputError as error:
        raise InputError(f"{path}: {why_not(config)}, and it cannot be recorded: {error}") from error
    return model, tokens if "input_ids" in inputs else None


def _require_transformers(path: Path, config: Mapping[str, Any]) -> ModuleType:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise InputError(
            f"{path}: {why_not(config)}; with pip install 'phaze-dse[hugging-face]' the model itself is built, "
            "without its weights"
        ) from error


def _model_class(transformers: ModuleType, config: Mapping[str, Any], settings: object) -> Module:
    """The class that the config names; otherwise one with logits as its output."""
    for name in config.get("architectures") or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)._from_config
    for task in ("CausalLM", "MaskedLM", "Seq2SeqLM", "ImageClassification"):
        auto = getattr(transformers, f"AutoModelFor{task}")
        if type(settings) in auto._model_mapping:
            return auto.from_config
    raise ValueError(f"no model with a head for model_type {config['model_type']}")


def _positions(config: Mapping[str, Any]) -> int:
    return next((int(config[key]) for key in _POSITIONS if config.get(key)), DEFAULT_TOKENS)


def _inputs(
    torch: ModuleType,
    module: Module,
    config: Mapping[str, Any],
    tokens: int,
    path: Path,
) -> dict[str, object]:
    """Example inputs by the model's main input."""
    main = str(module.main_input_name)
    if main == "pixel_values":
        size = config.get("image_size", 224)
        height, width = size if isinstance(size, list) else (size, size)
        shape = (1, int(config.get("num_channels", 3)), height, width)
        return {main: torch.zeros(shape, device="meta")}
    if main != "input_ids":
        raise InputError(f"{path}: the model reads {main}; give it to phaze.from_torch with example inputs")
    ids = torch.zeros((1, tokens), dtype=torch.long, device="meta")
    decoder = {"decoder_input_ids": ids} if config.get("is_encoder_decoder") else {}
    return {main: ids, "use_cache": False, **decoder}
