"""Hugging Face models that no family describes: built by transformers on the meta device, and recorded."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from phaze.errors import InputError, Remark
from phaze.workload.hugging_face.model_config import config_file, config_name, why_not
from phaze.workload.torch_export.exported_model import ExportedModel
from phaze.workload.torch_export.torch_tracing import Told, record, require_torch

Module = Any  # a class or object of transformers, which is optional

DEFAULT_TOKENS = 2048  # of a sample, where the config does not tell its positions
SAMPLES = 16_000  # of a sound: one second at the rate that such models are trained at (wav2vec 2.0, arXiv 2006.11477)
_TASKS = (
    *("CausalLM", "MaskedLM", "Seq2SeqLM", "ImageTextToText", "ImageClassification", "SpeechSeq2Seq"),
    *("CTC", "AudioClassification", "SemanticSegmentation", "ObjectDetection", "DepthEstimation"),
    *("UniversalSegmentation", "MaskGeneration", "ZeroShotImageClassification", "VideoClassification"),
    *("SequenceClassification", "QuestionAnswering", "TextToSpectrogram", "TextToWaveform"),
)
_TOWERS = {"input_ids": "text_config", "pixel_values": "vision_config", "input_features": "audio_config"}
"""Inputs beside the main one, and the part of a config that describes what reads them."""
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_LONGEST = 300  # of what a library says of a config
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
    try:
        module, inputs, tokens = example(transformers, require_torch(), path, config, sequence_length)
    except InputError:
        raise
    except Exception as error:  # whatever a library makes of a config that contradicts itself
        reason = " ".join(str(error).split())[:_LONGEST]
        raise InputError(f"{path}: {why_not(config)}; transformers cannot build it: {reason}") from error
    try:
        # masks that mark tokens as special (global attention), which nobody gives here, have none
        model = record(module, (), inputs, config_name(config, str(path)), Told(branch=False))
    except InputError as error:
        raise InputError(f"{path}: {why_not(config)}, and it cannot be recorded: {error}") from error
    return model, tokens if "input_ids" in inputs else None


def example(
    transformers: ModuleType,
    torch: ModuleType,
    path: Path,
    config: Mapping[str, Any],
    sequence_length: int | None,
) -> tuple[Module, dict[str, object], int]:
    """The model of a config on the meta device, arguments of its `forward`, and its tokens."""
    settings = transformers.AutoConfig.from_pretrained(str(path.parent), local_files_only=True)
    for part in (settings, getattr(settings, "text_config", settings)):
        part.use_cache = False
    with torch.device("meta"):
        module = _model_class(transformers, config, settings)(settings).eval()
    known = module.config.to_dict()
    tokens = sequence_length or _positions(known)
    return module, _inputs(torch, module, known, tokens, path), tokens


def _require_transformers(path: Path, config: Mapping[str, Any]) -> ModuleType:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise InputError(
            f"{path}: {why_not(config)}; with pip install '.[hugging-face]' in a clone of phaze the model itself is "
            "built, without its weights"
        ) from error


def _model_class(transformers: ModuleType, config: Mapping[str, Any], settings: object) -> Module:
    """The class that the config names; otherwise one with logits as its output, or else the bare model."""
    for name in config.get("architectures") or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)._from_config
    both = ("Seq2SeqLM", "SpeechSeq2Seq") if getattr(settings, "is_encoder_decoder", False) else ()
    for task in (*both, *_TASKS):
        auto = getattr(transformers, f"AutoModelFor{task}", None)
        if auto is None:
            continue
        if type(settings) in auto._model_mapping:
            found = auto._model_mapping[type(settings)]
            # of several classes (with and without a distilling head) `from_config` takes the one that a config names
            return found[0]._from_config if isinstance(found, tuple) else auto.from_config
    if type(settings) in transformers.AutoModel._model_mapping:
        msg = f"model_type {config['model_type']} has no head that is known, so it ends with its last hidden state"
        warnings.warn(msg, Remark, stacklevel=3)
        return transformers.AutoModel.from_config
    raise ValueError(f"no model for model_type {config['model_type']}")


def _positions(config: Mapping[str, Any]) -> int:
    parts = (config, config.get("text_config") or {})
    return next((int(part[key]) for part in parts for key in _POSITIONS if part.get(key)), DEFAULT_TOKENS)


def _inputs(
    torch: ModuleType,
    module: Module,
    config: Mapping[str, Any],
    tokens: int,
    path: Path,
) -> dict[str, object]:
    """Example inputs: the model's main one, and those of its towers beside it."""
    main = str(module.main_input_name)
    known = signature(module.forward).parameters
    makers = {
        "input_ids": _ids,
        "pixel_values": _pixels,
        "input_features": _features,
        "input_values": _samples,
        "past_values": _series,
        "bbox": _boxes,
        "inputs": _ids,  # Perceiver, of words
        "image_embeds_position_mask": _marks,
    }
    if main not in makers:
        raise InputError(f"{path}: the model reads {main}; give it to phaze.from_torch with example inputs")
    fixed = "image_grid_thw" not in known  # patches of images of any size have no batch of their own
    beside = (name for name, part in _TOWERS.items() if name in known and config.get(part))
    needed = (n for n, p in known.items() if p.default is p.empty and n in makers and p.kind in _NAMED)
    wanted = [main, *(name for name in beside if fixed or name != "pixel_values"), *needed]
    wanted += (
        ["input_ids"] if main == "pixel_values" and {"input_ids", "vocab_size"} <= {*known, *config} else []
    )
    if main == "input_ids" and "pixel_values" in known and {"patch_size", "image_size"} <= {*config}:
        wanted.append("pixel_values")  # one encoder for words and patches (ViLT)
    wanted += ["bbox"] if "bbox" in known else []
    if "pixel_values" in wanted and "image_embeds_position_mask" in known:
        wanted.append("image_embeds_position_mask")  # where words give way to an image (Kosmos-2)
    given = {name: makers[name](torch, config, tokens) for name in dict.fromkeys(wanted)}
    if config.get("is_encoder_decoder"):
        length = min(tokens, int(config.get("max_target_positions") or tokens))
        if "decoder_input_values" in known and "decoder_input_ids" not in known:
            given["decoder_input_values"] = torch.zeros(
                (1, length, int(config["num_mel_bins"])), device="meta"
            )
        else:
            given["decoder_input_ids"] = _ids(torch, config, length)
    caches = "use_cache" in known or ("kwargs" in known and module.can_generate())
    return {**given, "use_cache": False} if caches and "input_ids" in given else given


def _ids(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Tokens, (batch, tokens)."""
    return torch.zeros((1, tokens), dtype=torch.long, device="meta")


def _pixels(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """One image, (batch, channels, height, width); so many of a video, before the channels."""
    part = config.get("vision_config") or config
    size = part.get("image_size") or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    frames = (int(part["num_frames"]),) if part.get("num_frames") else ()
    return torch.zeros((1, *frames, int(part.get("num_channels") or 3), height, width), device="meta")


def _series(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Values of a time series, (batch, times, channels)."""
    times = int(config.get("context_length") or tokens)
    return torch.zeros((1, times, int(config.get("num_input_channels") or 1)), device="meta")


def _boxes(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Where each token stands on a page, (batch, tokens, 4)."""
    return torch.zeros((1, tokens, 4), dtype=torch.long, device="meta")


def _marks(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Which tokens stand for an image, (batch, tokens)."""
    return torch.zeros((1, tokens), dtype=torch.bool, device="meta")


def _features(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Spectrum of a sound, (batch, mel bins, frames): as long as the encoder takes, two frames to a position."""
    part = config.get("audio_config") or config
    if "spec_size" in part:  # Swin on spectra, which are folded into a square (CLAP)
        bins = int(part["num_mel_bins"])
        return torch.zeros((1, 1, int(part["spec_size"]) ** 2 // bins, bins), device="meta")
    if "feature_projection_input_dim" in part:  # 10 ms a frame, two of them side by side: one second
        return torch.zeros((1, 50, int(part["feature_projection_input_dim"])), device="meta")
    if "max_source_positions" not in part:
        raise InputError(
            f"{config['model_type']}: no config key tells its frames; give them to phaze.from_torch"
        )
    frames = 2 * int(part["max_source_positions"])
    if "input_feat_per_channel" in part:  # Speech2Text: frames first
        return torch.zeros((1, frames, int(part["input_feat_per_channel"])), device="meta")
    return torch.zeros((1, int(part["num_mel_bins"]), frames), device="meta")


def _samples(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Samples of a sound, (batch, samples); or its spectrum, (batch, frames, mel bins), where a config has one."""
    if "num_mel_bins" in config:
        return torch.zeros((1, int(config["max_length"]), int(config["num_mel_bins"])), device="meta")
    return torch.zeros((1, SAMPLES), device="meta")
