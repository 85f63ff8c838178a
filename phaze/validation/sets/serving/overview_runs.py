"""Most output tokens per second of models that TensorRT-LLM serves to more requests than it has places for.

All requests are queued at once, so that a batch is as large as memory leaves it, up to that of the engine; smaller
ones are looked at, too, as the published tables are of the fastest settings. How experts are dealt is not told:
they are costed as divided among the tensor group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import numpy as np

from phaze.cost.fidelity import Fidelity
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.serving import ServingOptions, Traffic
from phaze.parallel.serving.load.prompt_passes import chunks_of
from phaze.parallel.serving.replicas.layer_grid import Served
from phaze.parallel.serving.replicas.replica_offers import held
from phaze.parallel.serving.replicas.steady_state import Cycle
from phaze.parallel.serving.serving_engine import NO_ENGINE, load_engine
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of, system_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.serving.engine_runs import EngineRun, replica_on
from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.low_precision import Recipe

_MODELS: Mapping[str, str] = MappingProxyType(
    {
        "Llama 3.3 70B": "llama3.1-70b",  # the same layers
        "Llama 4 Maverick": "llama4-maverick",
        "Llama 4 Scout": "llama4-scout",
        "Qwen3-235B-A22B": "qwen3-235b-a22b",
        "Qwen3-30B-A3B": "qwen3-30b-a3b",
    }
)
_SYSTEMS: Mapping[str, str] = MappingProxyType({"H200": "h200_sxm", "GB200": "gb200"})
_RECIPES: Mapping[str, Recipe] = MappingProxyType({"fp8": Recipe.FP8, "fp4": Recipe.NVFP4})
_ENGINE = "tensorrt-llm"
_LARGEST = 2048
"""Sequences that the engine decodes at once at most (max_batch_size of trtllm-bench)."""


@dataclass(frozen=True, slots=True)
class _OverviewRow:
    """A run on one replica of some stages, and its output tokens per second."""

    run: EngineRun
    stages: int
    tokens_per_s: float


def throughputs(columns: Columns) -> Judged:
    """Output tokens per second of a replica that somebody always waits for."""
    excluded, kept = Counter[str](), list[_OverviewRow]()
    names = ("tp", "pp", "isl", "osl", "output_tokens_per_s")
    numbers = zip(*(columns.numbers(name).tolist() for name in names), strict=True)
    texts = zip(*(columns[name] for name in ("model", "device", "format")), strict=True)
    for words, sizes in zip(texts, numbers, strict=True):
        found = _row(words, sizes)
        if isinstance(found, str):
            excluded[found] += 1
        else:
            kept.append(found)
    measured = np.array([row.tokens_per_s for row in kept])
    predicted = {
        rung: np.array([_most_tokens_per_s(row.run, row.stages, rung) for row in kept])
        for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED)
    }
    return Judged(measured, predicted, dict(excluded))


def _row(words: tuple[str, ...], sizes: tuple[float, ...]) -> _OverviewRow | str:
    (model, device, few_bits), (width, stages, prompt, output, tokens_per_s) = words, sizes
    system = _SYSTEMS.get(device, device)
    if chip_of(system) is None:
        return NO_TEMPLATE
    if system_of(system) is None and width * stages > 1:
        return "a system whose network is not known"
    if model not in _MODELS:
        return "model is not represented"
    run = EngineRun(
        model=_MODELS[model],
        system=system,
        engine=_ENGINE,
        recipe=_RECIPES[few_bits],
        cache=CacheFormat.FP8,
        width=int(width),
        shared=1,
        traffic=Traffic(int(prompt), int(output)),
        apart=False,
    )
    return _OverviewRow(run, int(stages), tokens_per_s)


@cache
def _most_tokens_per_s(run: EngineRun, stages: int, rung: Fidelity) -> float:
    """Of all batches that memory has room for, and that keep up with their prompts."""
    engine = load_engine(run.engine) if rung is Fidelity.CALIBRATED else NO_ENGINE
    chip, system = chip_of(run.system), system_of(run.system)
    if chip is None:
        msg = f"{run.system} has no template"
        raise ValueError(msg)
    network = load_network("default") if system is None else system.network  # of one device alone
    served = Served(run.model, KvCache.PAGED, run.cache, run.recipe)
    one = replica_on(chip, network, rung, served, run.traffic, _LARGEST, width=run.width)
    replica = replace(one, stages=stages, overheads=engine.overheads)
    grid = replica.grid
    chunks = chunks_of(grid.traffic, grid.chunks[0])
    batches = np.unique(np.geomspace(1, _LARGEST, 200).round())
    cycle = Cycle(replica, grid.traffic, batches, chunks, mixed=True, most_prompts=grid.prompts)
    room = float(hbm_capacity_bytes(grid.chip.table)[0]) * ServingOptions().memory_share
    fits = held(cycle, room)
    rates = np.where(fits.keeps_up, fits.requests_per_s, 0.0)
    return float(rates.max()) * run.traffic.output_tokens
