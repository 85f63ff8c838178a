"""Values and sentences that options of several verbs share."""

from __future__ import annotations

DEVICES = 1024
"""Accelerators of a training unless something else is said."""

SERVING_DEVICES = 8
"""Accelerators of a service unless something else is said."""

METRICS = (
    *("throughput", "throughput_per_tdp", "mfu", "tdp", "area", "cost_per_chip"),
    *("score", "score_per_tdp", "energy_per_sample", "memory"),
    *("cost_per_sample", "cost_per_million_tokens", "carbon_per_sample", "carbon_per_million_tokens"),
)
"""Of frontiers and sweeps."""

OBJECTIVES = (
    *("throughput", "throughput_per_tdp", "tdp", "area", "energy_per_sample", "memory", "cost_per_chip"),
    *("cost_per_sample", "cost_per_million_tokens", "carbon_per_sample", "carbon_per_million_tokens"),
)
"""Of `dse run`."""

NODES = ("N28", "N16", "N12", "N8", "N7", "N6", "N5", "N4", "N3")
"""Process nodes."""

RECIPES = (
    *("none", "fp8", "fp8-early", "fp8-rows", "fp8-blocks", "mxfp8", "nvfp4"),
    *("int8", "fp8-weights", "int8-weights", "int4-weights", "mxfp4-weights", "nvfp4-weights"),
    *("mxfp4-experts", "mxfp4-mxfp8-experts", "nvfp4-experts"),
)

CACHE_FORMATS = ("fp8", "int8")

NGRAM = "ngram"
"""Draft that is no model: guesses are looked up in the text so far."""

WORKLOAD = "Built-in name, YAML, ONNX or .pt2 file, or hf:CONFIG.JSON."

WORKLOAD_AT_HAND = "Built-in name, YAML, ONNX or .pt2 file, `hf:CONFIG.JSON`, or a workload at hand."

CACHE_FORMAT = "Format of the key-value cache: fp8 or int8 (default: the precision of the model)."

SKEW = (
    "Exponent of the power law by which tokens want some experts more than others, for instance 0.6 (default: all are "
    "wanted alike)."
)

REDUNDANT = (
    "Copies of the most wanted experts, in all, with experts dealt by load (default: none, dealt by number)."
)
