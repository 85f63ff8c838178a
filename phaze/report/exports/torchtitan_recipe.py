"""Configuration of torchtitan in TOML (github.com/pytorch/torchtitan, torchtitan/config/job_config.py of release 0.2.2,
the last one that is not configured in Python).
"""

from __future__ import annotations

from collections.abc import Iterator

from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.report.exports.launch_recipe import (
    NO_MODEL,
    Model,
    Recipe,
    device_batch,
    divides_all,
    heading,
    model_of,
    recomputes_alike,
    uneven,
)

_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
}
_MODELS = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3-405b": ("llama3", "405B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
    "qwen3-8b": ("qwen3", "8B"),
    "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
}
"""Our workloads that are a flavor of a model in torchtitan (torchtitan/models/*/__init__.py): name and flavor."""

_FLOAT8, _MX = "quantize.linear.float8", "quantize.linear.mx"
_CONVERTERS = {"fp8": _FLOAT8, "fp8-early": _FLOAT8, "fp8-rows": _FLOAT8, "mxfp8": _MX}
"""Recipes that torchtitan has, and what converts a model's linear layers (torchtitan/components/quantization)."""


def write(document: PlanDocument) -> Recipe:
    """The sections of a plan and its model; data and learning are left to add."""
    s, model = document.best.strategy, model_of(document)
    recipe = document.request.get("recipe")
    lines = [
        *heading(document),
        "# for torchtitan 0.2.2; later ones are configured in Python",
        "",
        *_model(model, recipe),
        "",
        "[training]",
        f"local_batch_size = {_local(document)}",
    ]
    lines.append(f"global_batch_size = {document.request['global_batch']}")
    if model:
        lines.append(f"seq_len = {model.tokens}")
    if {"weights", "optimizer"} & {*s.offload}:
        lines.append("enable_cpu_offload = true")
    lines += ["", "[parallelism]", *_parallel(s), "", "[activation_checkpoint]", f'mode = "{s.recompute}"']
    lines += _few_bits(recipe)
    return Recipe("\n".join(lines) + "\n", (*_remarks(s), *_unlike(model), *_lost(recipe)))


def _model(model: Model | None, recipe: str | None) -> list[str]:
    """The section of the model: a flavor of torchtitan's, and what runs its linear layers in few bits."""
    named = _MODELS.get(model.name) if model else None
    lines = [f'name = "{named[0]}"', f'flavor = "{named[1]}"'] if named else _sizes(model)
    kind = _CONVERTERS.get(recipe or "")
    return ["[model]", *lines, *([f'converters = ["{kind}"]'] if kind else [])]


def _sizes(model: Model | None) -> list[str]:
    """What a flavor to be added would hold, in comments, under a name of which torchtitan starts no other model."""
    if model is None:
        return []
    d = model.decoder
    head = f"# dim={d.hidden}, n_layers={d.layers}, n_heads={d.heads}, n_kv_heads={d.kv}, vocab_size={d.vocabulary}"
    gate = "gated " if d.gated else ""
    return [
        f'name = "{model.name}"',
        f'flavor = "{model.name}"',
        head,
        f"# feed-forward {d.ffn} wide, {gate}{d.activation}; {d.norm} norms; positions {d.positions}",
    ]


def _few_bits(recipe: str | None) -> list[str]:
    """Section of a recipe that torchtitan has; that of MX is its own default."""
    if _CONVERTERS.get(recipe or "") != _FLOAT8:
        return []
    option = 'recipe_name = "rowwise"' if recipe == "fp8-rows" else "enable_fsdp_float8_all_gather = true"
    return ["", f"[{_FLOAT8}]", option]


def _unlike(model: Model | None) -> Iterator[str]:
    """That no model of torchtitan is this one."""
    if model is None:
        yield NO_MODEL
    elif model.name not in _MODELS:
        yield f"torchtitan ships no {model.name}, and does not start before one is registered with the sizes in [model]"


def _lost(recipe: str | None) -> Iterator[str]:
    if recipe == "fp8":
        yield "fp8 is Transformer Engine's: TorchAO scales by tensor, too, but keeps inputs for backward in 16 bits"
    elif recipe and recipe not in _CONVERTERS:
        yield f"torchtitan has no recipe {recipe}: the configuration runs 16 bits"


def _local(document: PlanDocument) -> int:
    """Samples of one data-parallel rank before its gradients are added up: with a pipeline all of an iteration."""
    s = document.best.strategy
    return device_batch(document) if s.pipeline_parallel > 1 else s.microbatch_size


def _parallel(s: StrategyRecord) -> Iterator[str]:
    shard = (s.shard_group or s.data_parallel) if s.zero_stage else 1
    yield f"data_parallel_shard_degree = {shard}"
    yield f"data_parallel_replicate_degree = {s.data_parallel // shard}"
    if s.zero_stage:
        yield f'fsdp_reshard_after_forward = "{"always" if s.zero_stage == 3 else "never"}"'
    yield f"tensor_parallel_degree = {s.tensor_parallel}"
    yield f"context_parallel_degree = {s.context_parallel}"
    yield f"pipeline_parallel_degree = {s.pipeline_parallel}"
    if s.pipeline_parallel > 1:
        yield f'pipeline_parallel_schedule = "{_SCHEDULES.get(s.schedule, "1F1B")}"'
        yield f"pipeline_parallel_microbatch_size = {s.microbatch_size}"
    if s.expert_parallel > 1:
        yield f"expert_parallel_degree = {s.expert_parallel}"


def _remarks(s: StrategyRecord) -> Iterator[str]:
    if s.pipeline_parallel > 1 and s.schedule not in _SCHEDULES:
        yield f"torchtitan has no schedule {s.schedule}; the recipe runs 1F1B"
    yield from divides_all(s, "torchtitan")
    if s.zero_stage in (1, 2):
        yield "torchtitan divides weights as well (FSDP); kept gathered after forward, they cost what ZeRO 2 costs"
    yield from recomputes_alike(s, "torchtitan")
    if s.recompute == "full" and s.recomputed_blocks is not None:
        yield "torchtitan recomputes all blocks or none: the recipe recomputes all"
    if len({"weights", "optimizer"} & {*s.offload}) == 1:
        yield "torchtitan offloads weights, gradients and optimizer together: the recipe offloads all of them"
    if "activations" in s.offload:
        yield "torchtitan has no option that offloads activations"
    if uneven(s):
        yield f"stages of {s.blocks} blocks need module_fqns_per_model_part"
