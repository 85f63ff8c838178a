"""Under which heading an option stands: the same in every verb that has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

_Item = TypeVar("_Item")

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Question": (
        *(
            "arch",
            "workload",
            "devices",
            "global_batch",
            "mode",
            "context",
            "prompt",
            "output_tokens",
            "rate",
            "concurrency",
            "trace",
            "prefix_block",
            "prefix_hits",
            "host_hits",
            "serve",
        ),
        *("fleet", "noise_scale", "batch_range", "failures", "on_failure", "domain", "fill", "switch"),
        *("beside", "beside_mode", "beside_batch"),
        *("vary", "objective", "objectives", "axes", "x", "y", "z", "reference", "combine", "weight"),
        *(
            "layer",
            "microbatches",
            "collective",
            "sizes",
            "data",
            "only",
            "part",
            "loop",
            "leave_out",
            "of",
            "target",
            "system",
            "bandwidth",
        ),
    ),
    "Budgets and limits": (
        *(
            "power",
            "power_means",
            "area",
            "power_density",
            "cluster_power",
            "cluster_cost",
            "cluster_overhead",
            "memory",
        ),
        *("min_throughput", "max_latency", "max_ttft", "max_tpot", "ttft", "tpot", "tdp_margin", "dvfs"),
    ),
    "Design space": ("space", "fix", "node", "clock", "family", "like"),
    "Placement": (
        *("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel"),
        *(
            "sequence_parallel",
            "plans",
            "whole",
            "microbatch",
            "schedule",
            "chunks",
            "recompute",
            "zero",
            "order",
            "offload",
        ),
        *("disaggregate", "decode_arch", "prefill_power", "decode_power", "chunk"),
        *("kv_cache", "kv_cache_format", "prefix_cache", "host_cache"),
        *("draft", "draft_tokens", "acceptance", "acceptance_length"),
        *("expert_skew", "redundant_experts"),
    ),
    "Search": (
        *("strategy", "sampler", "trials", "evaluations", "designs", "top_k", "robust", "method", "compat"),
        *(
            "gap",
            "within",
            "time_limit",
            "budgets",
            "samples_checked",
            "simulate",
            "workers",
            "executor",
            "join",
            "batch",
            "seed",
        ),
    ),
    "Model": (
        *(
            "network",
            "framework",
            "rung",
            "calibration",
            "constants",
            "attention",
            "fusion",
            "recipe",
            "dispatch",
            "engine",
            "bind",
        ),
    ),
    "Money and carbon": (
        *("tokens", "samples", "electricity_price", "pue", "carbon_intensity", "volume", "rent", "economics"),
    ),
    "Output": (
        *(
            "out",
            "resume",
            "no_cache",
            "stale",
            "storage",
            "study",
            "cache",
            "per_stage",
            "format",
            "gantt",
            "plot",
            "yaml",
            "port",
            "browser",
            "script",
        ),
        *("json", "quiet"),
    ),
    "Shell": ("version", "install_completion", "show_completion"),
}
"""Headings in the order of a page, and the options below each in theirs, by the name of the parameter."""

OTHER = "Other options"
"""Where an option stands that has no group."""


def grouped(items: Mapping[str, _Item]) -> Iterator[tuple[str, list[_Item]]]:
    """Headings with what stands below them, by name of option; nothing is left out."""
    for heading, names in GROUPS.items():
        if found := [items[name] for name in names if name in items]:
            yield heading, found
    if rest := [item for name, item in items.items() if name not in grouped_options()]:
        yield OTHER, rest


def grouped_options() -> set[str]:
    """Names of all options with a group."""
    return set(_all(GROUPS.values()))


def _all(groups: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for names in groups:
        yield from names
