"""Pre-training throughput that NVIDIA publishes for Megatron-Bridge, with the plan of every run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache

from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework, TensorOverlap, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule, refusal
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import decoder
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Workload
from phaze.workload.workload_library import builtin_names, builtin_spec

NO_DIMENSIONS = "no dimensions of the model"
NO_LATENT = "latent attention without its sizes"

_RECIPES = (("NVFP4", Recipe.NVFP4), ("BF16", None), ("FP8-CS", Recipe.FP8), ("MX", Recipe.MXFP8))
"""By what is found in the precision, the first that is; FP8 with one scale per tensor where none is."""

_NETWORKS = (("GB", "nvl72"), ("B", "hgx-b200"), ("H", "hgx-h100"))
"""By how the name of the system's chip begins."""

_GRAPHS = (26, 6)
"""First release (year, month) that runs iterations of mixtures of experts as whole graphs of kernels."""

_NAMED = (26, 2)
"""First release whose recipes of Qwen3 name a dispatcher (qwen3_workload_base_configs.py: HybridEP)."""

_SERVER = 8
"""Devices of a server but for those of a rack of 72."""

_Cells = Mapping[str, str]


def training(columns: Columns) -> Judged:
    """Seconds per iteration."""
    runs = PublishedRuns()
    for row, measured in enumerate(columns.numbers("iteration_s")):
        cells = {name: columns[name][row] for name in columns.text}
        system = cells["system"].removeprefix("DGX-")
        chip = chip_of(system)
        if not cells["layers"] or not cells["seq_len"]:
            runs.drop(NO_DIMENSIONS)
        elif chip is None:
            runs.drop(NO_TEMPLATE)
        elif (workload := _workload(cells, framework := _framework(cells))) is None:
            runs.drop(NO_LATENT)
        else:
            network = next(name for start, name in _NETWORKS if system.startswith(start))
            cluster = Cluster(_degree(cells["n_gpus"]), _degree(cells["gbs"]), load_network(network))
            runs.keep(PublishedRun(chip, workload, cluster, framework, _strategy(cells), float(measured)))
    return runs.judge()


def _framework(cells: _Cells) -> Framework:
    """Framework with the recipes of a release.

    Tensor-parallel exchanges do not overlap in NVFP4. Experts that drop tokens take the dispatcher that sends every
    copy (apply_moe_token_drop refuses any other), and so do recipes that name none (Qwen3 up to 25.11).
    """
    framework, recipe = load_framework(_generation(cells)), _recipe(cells)
    apart: dict[str, object] = {"tensor_overlap": TensorOverlap.NONE} if recipe is Recipe.NVFP4 else {}
    if "tokendrop" in cells["model"] or (cells["model"].startswith("Qwen3") and _release(cells) < _NAMED):
        apart["merges_copies"] = False
    return framework.model_copy(update=apart)


def _release(cells: _Cells) -> tuple[int, int]:
    """Year and month."""
    year, month = (int(part) for part in re.findall(r"\d+", cells["release"])[:2])
    return year, month


def _generation(cells: _Cells) -> str:
    """The generation of the software.

    From `_GRAPHS` on, mixtures of experts in MXFP8 run as whole graphs; before, exchanges of experts run beside
    computation where they leave the server, which takes an interleaved pipeline.
    """
    if _release(cells) >= _GRAPHS and "moe" in cells["arch"] and _recipe(cells) is Recipe.MXFP8:
        return "megatron-bridge-2026"
    leaves = _degree(cells["ep"]) > _SERVER and not cells["system"].startswith("DGX-GB")
    overlaps = leaves and _degree(cells["vp"]) > 1
    return "megatron-bridge-overlapped" if overlaps else "megatron-bridge-2025"


def _strategy(cells: _Cells) -> ParallelPlan:
    """The plan of a row; all but Megatron-FSDP divide the optimizer's states alone."""
    tensor, pipeline, context = (_degree(cells[name]) for name in ("tp", "pp", "cp"))
    blocks, sharded = int(cells["layers"]), _degree(cells["fsdp"])
    chunks = min(_degree(cells["vp"]), blocks // pipeline)  # some recipes give ends parts of their own
    replicas = _degree(cells["n_gpus"]) // (tensor * pipeline * context)
    microbatches = _degree(cells["gbs"]) // (_degree(cells["mbs"]) * replicas)
    schedule, chunks = interleaved(pipeline, chunks, microbatches)
    return ParallelPlan(
        microbatch=_degree(cells["mbs"]),
        data_parallel=replicas,
        pipeline_parallel=pipeline,
        sharding=Sharding(tensor, tensor > 1, context, _degree(cells["ep"]), folded=True),
        schedule=schedule,
        chunks=chunks,
        stages=stages(blocks, pipeline * chunks),
        zero=Zero.WEIGHTS if sharded > 1 else Zero.OPTIMIZER,
    )


def interleaved(stages: int, chunks: int, microbatches: int) -> tuple[Schedule, int]:
    """The schedule with so many chunks on a device where it runs, otherwise 1F1B with one."""
    if refusal(Schedule.INTERLEAVED, stages, microbatches, chunks) is None and stages > 1:
        return Schedule.INTERLEAVED, chunks
    return Schedule.ONE_F_ONE_B, 1


def _degree(cell: str) -> int:
    """The first number of a cell, of which the second belongs to another precision; 1 where there is none."""
    found = re.match(r"\d+", cell)
    return max(int(found.group()), 1) if found else 1


def stages(blocks: int, parts: int) -> tuple[int, ...]:
    """Blocks in each part where they do not divide evenly, as Megatron-Bridge's recipes lay them out.

    Embedding and loss count as a block each where that makes equal parts; otherwise all parts but the last are as
    long as one with the loss.
    """
    long = -(-(blocks + 1) // parts)
    if blocks % parts and (blocks + 2) % parts == 0 and long > 1:
        return (long - 1, *(long,) * (parts - 2), long - 1)
    left = blocks - long * (parts - 1)
    return (*(long,) * (parts - 1), left) if blocks % parts and left > 0 else ()


def _workload(cells: _Cells, framework: Framework) -> Workload | None:
    """The built-in model with the row's dimensions, or one made of them; None where they do not say enough."""
    known = _builtin(*(cells[column] for column in _DIMENSIONS))
    if known is None and "MLA" in cells["arch"]:
        return None
    dimensions = _dimensions(cells) if known is None else dict(known)
    if known is not None and "latent" in known and "w/o MTP" not in cells["model"]:
        dimensions["ahead"] = 1
    return _built(json.dumps(dimensions), int(cells["seq_len"]), framework, _recipe(cells))


def _recipe(cells: _Cells) -> Recipe | None:
    """How linear layers are run."""
    return next((recipe for sign, recipe in _RECIPES if sign in cells["precision"]), Recipe.FP8)


@lru_cache(maxsize=64)
def _built(dimensions: str, tokens: int, framework: Framework, recipe: Recipe | None) -> Workload:
    """Rows of one model share it, and with it what its layers cost."""
    return decoder(json.loads(dimensions), tokens, framework.attention, framework.fusion, recipe=recipe)


_DIMENSIONS = ("layers", "hidden", "heads", "ffn_or_expert_ffn", "vocab")


@lru_cache(maxsize=64)
def _builtin(*cells: str) -> Mapping[str, object] | None:
    """Dimensions of the built-in decoder that has these; its feed-forward width is that of an expert if it has some."""
    wanted = tuple(int(cell) for cell in cells)
    for name in builtin_names():
        d = builtin_spec(name).dimensions
        if not isinstance(d, Decoder):
            continue
        width = d.experts.hidden if d.experts else d.ffn
        if (d.layers, d.hidden, d.heads, width, d.vocabulary) == wanted:
            return d.model_dump(mode="json", exclude_unset=True)
    return None


def _dimensions(cells: _Cells) -> dict[str, object]:
    """A model of today: gated, root-mean-square norms, rotated positions, no biases."""
    found = re.search(r"moe (\d+)e top(\d+)(?: \+ (\d+) shared)?", cells["arch"])
    width = int(cells["ffn_or_expert_ffn"])
    dimensions: dict[str, object] = {
        "layers": int(cells["layers"]),
        "hidden": int(cells["hidden"]),
        "heads": int(cells["heads"]),
        "ffn_hidden": width,
        "vocabulary": int(cells["vocab"]),
        "max_positions": int(cells["seq_len"]),
        "gated": True,
        "activation": "silu",
        "norm": "rms",
        "norm_place": "pre",
        "bias": False,
        "positions": "rope",
        "tied_embeddings": False,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
    if cells["kv_heads"]:
        dimensions["kv_heads"] = int(cells["kv_heads"])
    if found:
        number, chosen, shared = (int(group or 0) for group in found.groups())
        dimensions["experts"] = {"number": number, "per_token": chosen, "hidden": width, "shared": shared}
    return dimensions
