"""Hugging Face models that no family describes: built by transformers on the meta device, and recorded."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from inspect import Parameter, signature
from math import prod
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
ENTITIES, WORDS = 32, 30  # of a text, and of each: what LUKE's tokenizer allows (arXiv 2010.01057's code)
_TASKS = (
    *("CausalLM", "MaskedLM", "Seq2SeqLM", "ImageTextToText", "ImageClassification", "SpeechSeq2Seq"),
    *("CTC", "AudioClassification", "SemanticSegmentation", "ObjectDetection", "DepthEstimation"),
    *("UniversalSegmentation", "MaskGeneration", "ZeroShotImageClassification", "VideoClassification"),
    *(
        "PoseEstimation",
        "KeypointDetection",
        "SequenceClassification",
        "QuestionAnswering",
        "TextToSpectrogram",
        "TextToWaveform",
    ),
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
        model = _recorded(module, inputs, config_name(config, str(path)))
    except InputError as error:
        raise InputError(f"{path}: {why_not(config)}, and it cannot be recorded: {error}") from error
    return model, tokens if "input_ids" in inputs else None


def _recorded(module: Module, inputs: dict[str, object], name: str) -> ExportedModel:
    """The model recorded; where it takes no masks for granted, with them."""
    rows: dict[int | str, int] = {
        name: value.shape[0] for name, value in inputs.items() if hasattr(value, "shape")
    }
    # tokens that are special (global attention) are marked by masks that nobody gives
    told = Told(branch=False, rows=rows)
    try:
        return record(module, (), inputs, name, told)
    except InputError as error:
        missing = {key: like for key, like in full_masks(module, inputs) if "'NoneType' object" in str(error)}
        if not missing:
            raise
        return record(module, (), inputs | missing, name, told)


def full_masks(module: Module, inputs: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Masks that a model knows for inputs that it is given, (batch, positions): they leave nothing out."""
    known = signature(module.forward).parameters
    for name, of in (("attention_mask", "input_ids"), ("decoder_attention_mask", "decoder_input_ids")):
        if name in known and of in inputs:
            yield name, _full(inputs[of])
    features: Any = inputs.get("input_features")
    if "feature_attention_mask" in known and features is not None:
        yield "feature_attention_mask", _full(features[:, 0])


def _full(like: Module) -> object:
    """A mask that leaves nothing out: with content, which tells so."""
    return like.new_ones(like.shape, device="cpu").long()


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
    module = _built(transformers, torch, config, settings)
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


def _built(
    transformers: ModuleType, torch: ModuleType, config: Mapping[str, Any], settings: object
) -> Module:
    """The model of a config without memory: of the first class that the config suits (a decoder's may not be whole).

    Raises whatever transformers does where it suits none.
    """
    fault: Exception | None = None
    for maker in _model_classes(transformers, config, settings):
        try:
            with torch.device("meta"):
                return maker(deepcopy(settings)).eval()
        except Exception as error:  # noqa: BLE001 - whatever a library makes of a config that is another class's
            fault = fault or error
    raise fault or ValueError(f"no model for model_type {config['model_type']}")


def _model_classes(
    transformers: ModuleType, config: Mapping[str, Any], settings: object
) -> Iterator[Callable[[object], Module]]:
    """The class that the config names alone; otherwise those with a head, from logits on, or else the bare model."""
    for name in config.get("architectures") or ():
        if hasattr(transformers, name):
            yield getattr(transformers, name)._from_config
            return
    both = ("Seq2SeqLM", "SpeechSeq2Seq") if getattr(settings, "is_encoder_decoder", False) else ()
    for task in (*both, *_TASKS):
        auto = getattr(transformers, f"AutoModelFor{task}", None)
        if auto is not None and type(settings) in auto._model_mapping:
            found = auto._model_mapping[type(settings)]
            # of several classes (with and without a distilling head) `from_config` takes the one that a config names
            yield found[0]._from_config if isinstance(found, tuple) else auto.from_config
    if type(settings) in transformers.AutoModel._model_mapping:
        msg = f"model_type {config['model_type']} has no head that is known, so it ends with its last hidden state"
        warnings.warn(msg, Remark, stacklevel=5)
        yield transformers.AutoModel.from_config


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
        "entity_ids": _entities,
        "entity_position_ids": _mentions,
        "inputs": _ids,  # Perceiver, of words
        "image_embeds_position_mask": _marks,
        "input_features_mask": _whole_sound,
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
    wanted += [name for name in ("entity_ids", "entity_position_ids") if name in known]
    if "pixel_values" in wanted and "image_embeds_position_mask" in known:
        wanted.append("image_embeds_position_mask")  # where words give way to an image (Kosmos-2)
    if "input_features" in wanted and "audio_soft_tokens_per_image" in config:
        wanted.append("input_features_mask")  # without which the sound is not read (Gemma 3n)
    given = {name: makers[name](torch, config, tokens) for name in dict.fromkeys(wanted)}
    if config.get("is_encoder_decoder"):
        length = min(tokens, int(config.get("max_target_positions") or tokens))
        if "decoder_input_values" in known and "decoder_input_ids" not in known:
            given["decoder_input_values"] = torch.zeros(
                (1, length, int(config["num_mel_bins"])), device="meta"
            )
        else:
            # several streams of tokens of one sample are rows of their own (MusicGen)
            streams = int((config.get("decoder") or {}).get("num_codebooks") or 1)
            given["decoder_input_ids"] = torch.zeros((streams, length), dtype=torch.long, device="meta")
    caches = "use_cache" in known or ("kwargs" in known and module.can_generate())
    return {**given, "use_cache": False} if caches and "input_ids" in given else given


def _ids(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Tokens, (batch, tokens)."""
    return torch.zeros((1, tokens), dtype=torch.long, device="meta")


def _pixels(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """One image, (batch, channels, height, width); so many of a video, before the channels."""
    part = config.get("vision_config") or config
    size = part.get("image_size") or (part.get("backbone_config") or {}).get("image_size") or 224
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


def _entities(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """As many things that a text names as a sample may have words for one of them (LUKE), (batch, entities)."""
    return torch.zeros((1, ENTITIES), dtype=torch.long, device="meta")


def _mentions(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Where the words of each stand, (batch, entities, words)."""
    return torch.zeros((1, ENTITIES, WORDS), dtype=torch.long, device="meta")


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
    if "conf_reduction_factor" in part:  # Gemma 3n: as long as the tokens that stand for a sound in a text
        return torch.zeros((1, _frames_of_tokens(config, part), int(part["input_feat_size"])), device="meta")
    if "max_source_positions" not in part:
        raise InputError(
            f"{config['model_type']}: no config key tells its frames; give them to phaze.from_torch"
        )
    frames = 2 * int(part["max_source_positions"])
    if "input_feat_per_channel" in part:  # Speech2Text: frames first
        return torch.zeros((1, frames, int(part["input_feat_per_channel"])), device="meta")
    return torch.zeros((1, int(part["num_mel_bins"]), frames), device="meta")


def _frames_of_tokens(config: Mapping[str, Any], part: Mapping[str, Any]) -> int:
    """Frames that become the tokens of a sound, through strided convolutions and what is left out behind them."""
    strides = prod(int(along_time) for along_time, _ in part["sscp_conv_stride_size"])
    return int(config["audio_soft_tokens_per_image"]) * strides * int(part["conf_reduction_factor"])


def _whole_sound(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Which frames of a sound are its own, (batch, frames)."""
    frames = _frames_of_tokens(config, config["audio_config"])
    return torch.ones((1, frames), dtype=torch.bool)  # with content, which tells that it is full


def _samples(torch: ModuleType, config: Mapping[str, Any], tokens: int) -> object:
    """Samples of a sound, (batch, samples); or its spectrum, (batch, frames, mel bins), where a config has one."""
    if {"num_mel_bins", "max_length"} <= {*config}:
        return torch.zeros((1, int(config["max_length"]), int(config["num_mel_bins"])), device="meta")
    return torch.zeros((1, SAMPLES), device="meta")
