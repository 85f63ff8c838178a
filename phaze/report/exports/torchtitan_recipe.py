"""Configuration of torchtitan in TOML (github.com/pytorch/torchtitan, torchtitan/config)."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.report.exports.launch_recipe import Recipe, device_batch, divides_all, heading, sizes_of, uneven

_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
}


def write(document: PlanDocument) -> Recipe:
    """The sections of a plan; model, data and learning are left to add."""
    s, sizes = document.best.strategy, sizes_of(document)
    lines = [*heading(document), "", "[training]", f"local_batch_size = {_local(document)}"]
    lines.append(f"global_batch_size = {document.request['global_batch']}")
    if sizes:
        lines.append(f"seq_len = {sizes.tokens}")
    if {"weights", "optimizer"} & {*s.offload}:
        lines.append("enable_cpu_offload = true")
    lines += ["", "[parallelism]", *_parallel(s), "", "[activation_checkpoint]", f'mode = "{s.recompute}"']
    recipe = document.request.get("recipe")
    lines += _few_bits(recipe)
    return Recipe("\n".join(lines) + "\n", (*_remarks(s), *_lost(recipe)))


def _few_bits(recipe: str | None) -> list[str]:
    """Sections of a recipe that torchtitan has."""
    if recipe in ("fp8", "fp8-early", "fp8-rows"):
        rows = (
            ['recipe_name = "rowwise"'] if recipe == "fp8-rows" else ["enable_fsdp_float8_all_gather = true"]
        )
        return ["", "[model]", 'converters = ["float8"]', "", "[float8]", *rows]
    return ["", "[model]", 'converters = ["mx"]', "", "[mx]"] if recipe == "mxfp8" else []


def _lost(recipe: str | None) -> Iterator[str]:
    if recipe == "fp8":
        yield "fp8 is Transformer Engine's: TorchAO scales by tensor, too, but keeps inputs for backward in 16 bits"
    if recipe == "nvfp4":
        yield "torchtitan has no recipe nvfp4: the configuration runs 16 bits"


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
    if s.recompute == "full" and s.recomputed_blocks is not None:
        yield "torchtitan recomputes all blocks or none: the recipe recomputes all"
    if len({"weights", "optimizer"} & {*s.offload}) == 1:
        yield "torchtitan offloads weights, gradients and optimizer together: the recipe offloads all of them"
    if "activations" in s.offload:
        yield "torchtitan has no option that offloads activations"
    if uneven(s):
        yield f"stages of {s.blocks} blocks need module_fqns_per_model_part"
