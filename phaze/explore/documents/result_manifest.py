"""Manifest of a result: versions, the task, and the scope of its certificate."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from typing import Any

from phaze.digest import json_sha256
from phaze.explore.documents.result_document import Machine, Manifest
from phaze.explore.request.explore_request import (
    ExploreRequest,
    Task,
    axes_of,
    check_weights,
    spelled_choices,
)
from phaze.parallel.chunk_division import Grain
from phaze.parallel.parallel_plan import Offload
from phaze.parallel.pipelines.pipeline_schedule import MOST_PASSES
from phaze.workload.fusion_rules import describe_fusion

_LIBRARIES = ("phaze-dse", "numpy", "numba", "pyomo", "highspy", "optuna", "onnx")
"""Whose version can change a result."""


def manifest(started: datetime, wall_time_s: float, seed: int) -> Manifest:
    """Versions, machine and time; what was asked and the hashes of its inputs are known to the caller only."""
    return Manifest(
        versions={"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES},
        command=[],
        seed=seed,
        inputs_sha256={},
        machine=machine(),
        started_utc=started.isoformat(timespec="seconds"),
        wall_time_s=wall_time_s,
    )


def question_sha256(told: Manifest) -> str:
    """SHA-256 of what a manifest says was asked, of which files."""
    names = {"asked", "seed", "inputs_sha256"}
    return json_sha256(told.model_dump(mode="json", include=names))


def machine() -> Machine:
    """This machine, without its name and that of its user."""
    return Machine(
        platform=f"{platform.system()} {platform.machine()}", cores=_cores(), memory_bytes=_memory_bytes()
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux: what a container or a job scheduler leaves to this process
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # no POSIX, or no such figure
        return None


def describe_task(task: Task) -> dict[str, Any]:
    """The task with every default spelled out, and what is held of its plans."""
    return {
        "workloads": [task.workload.name],
        "mode": task.workload.mode.value,
        "context": task.workload.context,
        "fusion": describe_fusion(task.workload.fusion),
        "devices": task.devices,
        "global_batch": task.cluster.global_batch,
        "network": task.network.name,
        "rung": task.rung.value,
        "calibration": dict(task.own),
        **({"recipe": task.recipe.value} if task.recipe else {}),
        "framework": task.framework.name,
        "plans": task.plans.name,
        "held": spelled_choices(task.held),
        "economics": dict(task.economics.given),
    }


def describe_request(request: ExploreRequest) -> dict[str, Any]:
    """Request with every default spelled out."""
    budgets = request.budgets
    return {
        **describe_task(request.task),
        **(_describe_several(request) if request.others else {}),
        "power_w": budgets.power_w,
        "power_means": budgets.power_means.value,
        "area_mm2": budgets.area_mm2,
        "power_density_w_per_mm2": budgets.power_density_w_per_mm2,
        "tdp_margin": budgets.tdp_margin,
        "dvfs": budgets.dvfs,
        "space": request.space.name,
        "objective": request.objective.value,
        "time_limit_s": request.time_limit_s,
        "min_throughput_samples_per_s": request.min_throughput,
        "max_latency_s": request.max_latency_s,
        "gap": request.gap,
        "seed": request.seed,
        "strategy": asdict(request.strategy) if request.strategy else None,
        "robust": request.robust,
        **({"designs": 2} if request.two_designs else {}),
        **({"axes": [axis.name for axis in axes_of(request)]} if request.over_axes else {}),
    }


def _describe_several(request: ExploreRequest) -> dict[str, Any]:
    """Several workloads, and what combines them."""
    names = [task.workload.name for task in request.tasks]
    return {
        "workloads": names,
        "global_batch": {
            name: task.cluster.global_batch for name, task in zip(names, request.tasks, strict=True)
        },
        "combine": request.combine.value,
        "weights": list(check_weights(request)),
    }


def precision_scope(task: Task) -> list[str]:
    """Scope of a certificate in formats: which, and that accuracy lost in few bits is not modelled."""
    if task.recipe is None:
        return ["precision bf16"]
    return [
        f"precision bf16, linear layers also by recipe {task.recipe.value} where arrays are faster at it",
        "as many samples in few bits as in bf16: a loss of accuracy is not modelled",
    ]


def scope(task: Task) -> list[str]:
    """The model choices a certificate speaks about."""
    return [
        f"rung {task.rung.value}",
        f"fusion {describe_fusion(task.workload.fusion)}",
        *precision_scope(task),
        f"network {task.network.name}",
        *plans_scope(task),
        "operators on one core or on all cores",
        "layer schedules minimise time",
    ]


def plans_scope(task: Task) -> list[str]:
    """Scope of a certificate in plans."""
    space, framework = task.plan_space, task.framework
    activations = any(Offload.ACTIVATIONS in offload for offload in space.offloads)
    long = task.cluster.global_batch * len(task.workload.chain(1, 1).index) > MOST_PASSES
    return [
        f"framework {framework.name}",
        f"plans {task.plans.name}",
        f"{framework.usable_memory:.0%} of a device's memory",
        f"tensor-parallel widths {', '.join(map(str, space.tensor))}",
        _RAGGED if space.ragged else "as many replicas as devices, batch and experts can be divided among",
        _EQUAL if space.equal else _LAYERS if Grain.LAYER in space.grains else _WHOLE,
        *([_BRANCHES] if space.branches else []),
        *([_BY_LAYER if space.by_layer else _FRUGAL] if space.frugal else []),
        *(["with activations at the host, recompute of all blocks or none"] if activations else []),
        *([f"at most {MOST_PASSES:,} microbatches times parts of a pipeline"] if long else []),
    ]


_RAGGED = "ragged degrees, too: replicas may have unequal numbers of microbatches"
_EQUAL = "stages of equally many blocks"
_WHOLE = "stages of whole blocks, as equal in number as can be or with fewer beside embedding and head"
_LAYERS = (
    "stages of whole blocks, or cut between any two layers (where a block is cut in two, halves of all blocks "
    "recompute and are gathered apart): as equal in number or FLOPs as can be, or with fewer beside embedding and head"
)
_BRANCHES = (
    "branches side by side under 1F1B, one microbatch size for all stages: for every number of stages and depth the "
    "stages of single layers whose longest is shortest, transfers aside (of groups of layers in large graphs), those "
    "in the model's order with branches cut apart or not, and what moving layers makes of them"
)
_BY_LAYER = (
    "full recompute of blocks, or of layers of them alone or each on its own, on each device those that take least and "
    "make room enough (where it has several parts of the model, the best of a few choices), beside ZeRO 1 with weights "
    "of as many blocks as pays divided among replicas, spread evenly over each device's"
)
_FRUGAL = "full recompute of the first blocks of each device, as few as memory asks for"
