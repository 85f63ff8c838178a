"""Models of timm, torchvision, transformers and diffusers by name, built without memory for weights, and their inputs.

Weights are random or none. Layers of transformers and diffusers that repeat are cut to a few: an operator that cannot
be read cannot be read in the first of them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

LAYERS = 4  # kept of those that repeat
TOKENS = 128
_DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
_DEPTHS += ("num_encoder_layers", "num_decoder_layers", "num_single_layers", "num_mmdit_layers")
_DEPTHS += ("num_single_dit_layers", "num_refiner_layers")
_DERIVED = ("hybrid_layer_ids",)  # what a config works out of its kinds of layers


@dataclass(frozen=True)
class Example:
    """A module on the meta device, and arguments of its `forward` with one sample."""

    module: torch.nn.Module
    inputs: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


def prepare() -> None:
    """Import the libraries once, before processes are forked."""
    _operators_of_torchvision()
    import diffusers  # noqa: F401
    import timm  # noqa: F401
    import torchvision.models  # noqa: F401
    import transformers

    from phaze import from_torch

    transformers.logging.set_verbosity_error()
    masks = importlib.import_module("transformers.masking_utils")
    masks.is_tracing = lambda *_: True  # masks without memory have no content to look into
    torch.set_num_threads(1)
    first = torch.nn.Linear(1, 1, device="meta")
    from_torch(first, (_zeros(1, 1),)).chain(1, 1)  # what recording itself imports


_VISION_OPERATORS: list[Any] = []


def _operators_of_torchvision() -> None:
    """Declare what torchvision cannot be imported without, where its compiled part does not load (built for CUDA)."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _VISION_OPERATORS.append(declared)  # they are gone with it


def _timm(name: str) -> Example:
    import timm

    with torch.device("meta"):
        module = timm.create_model(name, pretrained=False)
    size = timm.data.resolve_model_data_config(module)["input_size"]
    return Example(module.train(), (_zeros(1, *size),))


def _torchvision(name: str) -> Example:
    from torchvision import models

    more = (
        {"weights_backbone": None}
        if "rcnn" in name or "fcn" in name or "retina" in name or "ssd" in name
        else {}
    )
    more |= {"weights_backbone": None} if "deeplab" in name or "lraspp" in name else {}
    more |= {"init_weights": False} if name in {"googlenet", "inception_v3"} else {}
    try:
        with torch.device("meta"):
            module = models.get_model(name, weights=None, **more)
    except NotImplementedError:  # widths are read from tensors (RegNet)
        module = models.get_model(name, weights=None, **more).to("meta")
    if "rcnn" in name or "retina" in name or "ssd" in name:
        return Example(module.eval(), (_zeros(1, 3, 320, 320),))  # in training they want boxes to learn from
    module.train()
    if name.startswith("raft"):
        return Example(module, (_zeros(1, 3, 128, 128),) * 2)
    video = name in {"mc3_18", "r3d_18", "r2plus1d_18", "s3d", "swin3d_t", "mvit_v1_b", "mvit_v2_s"}
    size = 299 if name == "inception_v3" else 224
    return Example(module, (_zeros(1, 3, 16, size, size) if video else _zeros(1, 3, size, size),))


def _zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, device="meta")


def _ids(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, device="meta", dtype=torch.long)


def _full(*shape: int) -> torch.Tensor:
    """A mask with content: nothing is left out."""
    return torch.ones(shape, dtype=torch.bool)


_COMPLETED: Mapping[str, Mapping[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},  # of DeepSeek-V2-Lite (arXiv 2405.04434)
}
"""What a default config lacks, without which it is no model."""


_UNCUT = ("gemma3n",)  # layers share the keys and values of others, by their number


def config_folder(name: str, folder: Path, layers: int = LAYERS) -> Path:
    """A folder with the default config of a type of transformers, its layers cut."""
    from transformers import AutoConfig

    whole = AutoConfig.for_model(name).to_dict() | _COMPLETED.get(name, {})
    cut = name not in _UNCUT and not _reads_layers_after(whole, layers)
    for config in (shortened(whole, layers), whole) if cut else (whole,):
        content = config | {"model_type": name}
        (folder / "config.json").write_text(json.dumps(content, default=str), encoding="utf-8")
        try:
            AutoConfig.from_pretrained(str(folder), local_files_only=True)
        except Exception:  # noqa: BLE001 - a config that contradicts itself when cut: the whole one then
            continue
        return folder
    return folder


def _reads_layers_after(config: Mapping[str, Any], layers: int) -> bool:
    """Whether a model takes states of layers that would be cut (DPT)."""
    for key, value in config.items():
        if isinstance(value, dict) and _reads_layers_after(value, layers):
            return True
        if str(key).endswith("out_indices") and max(value or [0]) > layers:
            return True
    return False


def tokens_of(folder: Path) -> int | None:
    """Tokens to read: at most as many as a config in a folder has positions; None of images alone."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), local_files_only=True).to_dict()
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    if not any(part.get("vocab_size") for part in parts):
        return None
    limits = [part.get(key) for part in parts for key in ("max_position_embeddings", "n_positions")]
    return min([TOKENS, *(each for each in limits if isinstance(each, int) and each > 0)])


def shortened(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """A config with at most so many layers, and what it says of each of them."""
    depths = {config[key] for key in _DEPTHS if isinstance(config.get(key), int) and config[key] > layers}
    made = {}
    for key, value in config.items():
        if key in _DEPTHS and value in depths:
            made[key] = layers
        elif key in _DERIVED:
            continue
        elif isinstance(value, dict):
            made[key] = shortened(value, layers)
        elif isinstance(value, list) and len(value) in depths and len(set(map(str, value))) <= 2:
            made[key] = value[-layers:]
        else:
            made[key] = value
    return made


def _transformers(name: str) -> Example:
    """Model and inputs as the front end of phaze makes them of a config."""
    import tempfile

    import transformers

    from phaze.workload.hugging_face import meta_device_build
    from phaze.workload.hugging_face.model_config import read_config

    with tempfile.TemporaryDirectory() as kept:
        path = config_folder(name, Path(kept))
        config, tokens = read_config(str(path)), tokens_of(path)
        module, inputs, _ = meta_device_build.example(
            transformers, torch, path / "config.json", config, tokens
        )
    if name in _MASKED:
        inputs |= dict(meta_device_build.full_masks(module, inputs))
    return Example(module, (), inputs)


_MASKED = ("qwen2_audio",)  # types that take no masks for granted
_TEXT, _STEP = 77, (1,)

_DIFFUSERS: Mapping[str, tuple[Mapping[str, Any], Callable[[], Mapping[str, Any]]]] = {
    "DiTTransformer2DModel": (
        {"num_embeds_ada_norm": 1000},
        lambda: {"hidden_states": _zeros(1, 4, 32, 32), "timestep": _ids(1), "class_labels": _ids(1)},
    ),
    "UNet2DModel": ({}, lambda: {"sample": _zeros(1, 3, 64, 64), "timestep": _ids(1)}),
    "UNet2DConditionModel": (
        {},
        lambda: {
            "sample": _zeros(1, 4, 64, 64),
            "timestep": _ids(1),
            "encoder_hidden_states": _zeros(1, 77, 1280),
        },
    ),
    "SD3Transformer2DModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 16, 128, 128),
            "encoder_hidden_states": _zeros(1, 77, 4096),
            "pooled_projections": _zeros(1, 2048),
            "timestep": _ids(1),
        },
    ),
    "FluxTransformer2DModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 1024, 64),
            "encoder_hidden_states": _zeros(1, 77, 4096),
            "pooled_projections": _zeros(1, 768),
            "timestep": _zeros(1),
            "img_ids": torch.zeros(1024, 3, device="meta"),
            "txt_ids": torch.zeros(77, 3, device="meta"),
        },
    ),
    "PixArtTransformer2DModel": (
        {"sample_size": 64, "caption_channels": 4096},
        lambda: {
            "hidden_states": _zeros(1, 4, 64, 64),
            "encoder_hidden_states": _zeros(1, 120, 4096),
            "timestep": _ids(1),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        },
    ),
    "AuraFlowTransformer2DModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 4, 64, 64),
            "encoder_hidden_states": _zeros(1, 256, 2048),
            "timestep": _zeros(1),
        },
    ),
    "CogVideoXTransformer3DModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 13, 16, 60, 90),
            "encoder_hidden_states": _zeros(1, 226, 4096),
            "timestep": _ids(1),
        },
    ),
    "WanTransformer3DModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 16, 5, 60, 104),
            "timestep": _ids(1),
            "encoder_hidden_states": _zeros(1, 512, 4096),
        },
    ),
    "MochiTransformer3DModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 12, 3, 60, 106),
            "encoder_hidden_states": _zeros(1, 256, 4096),
            "timestep": _ids(1),
            "encoder_attention_mask": _full(1, 256),
        },
    ),
    "Lumina2Transformer2DModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 16, 64, 64),
            "timestep": _zeros(1),
            "encoder_hidden_states": _zeros(1, 64, 1024),
            "encoder_attention_mask": _full(1, 64),
        },
    ),
    "SanaTransformer2DModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 32, 32, 32),
            "encoder_hidden_states": _zeros(1, 300, 2304),
            "timestep": _ids(1),
        },
    ),
    "AutoencoderKL": (
        {
            "down_block_types": ("DownEncoderBlock2D",) * 4,
            "up_block_types": ("UpDecoderBlock2D",) * 4,
            "block_out_channels": (128, 256, 512, 512),
            "layers_per_block": 2,
        },
        lambda: {"sample": _zeros(1, 3, 256, 256)},
    ),
    "VQModel": ({}, lambda: {"sample": _zeros(1, 3, 32, 32)}),
    "UNet3DConditionModel": (
        {},
        lambda: {
            "sample": _zeros(1, 4, 4, 32, 32),
            "timestep": _ids(1),
            "encoder_hidden_states": _zeros(1, 77, 1024),
        },
    ),
    "UNetMotionModel": (
        {},
        lambda: {
            "sample": _zeros(1, 4, 4, 32, 32),
            "timestep": _ids(1),
            "encoder_hidden_states": _zeros(1, 77, 1280),
        },
    ),
    "UVit2DModel": (
        {},
        lambda: {
            "input_ids": _ids(1, 16, 16),
            "encoder_hidden_states": _zeros(1, 77, 768),
            "pooled_text_emb": _zeros(1, 768),
            "micro_conds": _zeros(1, 5),
        },
    ),
    "StableAudioDiTModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 64, 1024),
            "timestep": _zeros(1),
            "encoder_hidden_states": _zeros(1, 130, 768),
            "global_hidden_states": _zeros(1, 1, 1536),
            "rotary_embedding": tuple(torch.zeros(1025, 32, device="meta") for _ in range(2)),
        },
    ),
    "CogView3PlusTransformer2DModel": (
        {},
        lambda: {
            "hidden_states": _zeros(1, 16, 64, 64),
            "encoder_hidden_states": _zeros(1, 224, 4096),
            "timestep": _ids(1),
            "original_size": _zeros(1, 2),
            "target_size": _zeros(1, 2),
            "crop_coords": _zeros(1, 2),
        },
    ),
    "UNet1DModel": (
        {"extra_in_channels": 64, "sample_size": 65536},  # as many as the embedding of a step has
        lambda: {"sample": _zeros(1, 2, 65536), "timestep": _ids(1)},
    ),
}
"""Settings of each class beside its own, and what it reads: latents, a step, the states of a text."""

_WITHOUT_SAMPLES = ("img_ids", "txt_ids", "rotary_embedding")  # inputs that all samples share


def unbatched(keywords: Mapping[str, Any]) -> dict[str, None]:
    """Inputs without a batch."""
    return {name: None for name in keywords if name in _WITHOUT_SAMPLES}


class OneTextForAllFrames(torch.nn.Module):
    """A network of videos that wants the text once for each frame, as its pipeline gives it."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, encoder_hidden_states: torch.Tensor, **more: Any
    ) -> Any:
        """`sample` (batch, channels, frames, height, width), `encoder_hidden_states` (batch, tokens, width)."""
        texts = encoder_hidden_states.repeat_interleave(sample.shape[2], dim=0)
        return self.inner(sample, timestep, texts, **more)


def _diffusers(name: str) -> Example:
    import inspect

    import diffusers

    kind = getattr(diffusers, name, None) or getattr(diffusers.models, name)
    settings, inputs = _DIFFUSERS[name]
    parameters = inspect.signature(kind.__init__).parameters
    depths = {k: LAYERS for k in _DEPTHS if k in parameters and (parameters[k].default or 0) > LAYERS}
    with torch.device("meta"):
        module = kind(**depths, **settings)
    if name == "UNetMotionModel":
        module = OneTextForAllFrames(module)
    return Example(
        module.train(),
        (),
        dict(inputs()) | {"return_dict": False} if name != "UVit2DModel" else dict(inputs()),
    )


LIBRARIES: Mapping[str, Callable[[str], Example]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "transformers": _transformers,
    "diffusers": _diffusers,
}
