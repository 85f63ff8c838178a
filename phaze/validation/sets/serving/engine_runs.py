"""Models that engines serve to a fixed number of clients: time per output token, against the steady state of a replica.

A client asks again as soon as it is answered, so that as many sequences are in the batches as there are clients. Pools
that prefill and decode apart are judged by their decode pool. Nothing is fitted to these rows, the hosts of engines
take no time, and as many prompt tokens go beside decode as by the engines' defaults. Experts dealt among the ranks of a
tensor group are costed as divided among them. The cache of TensorRT-LLM is taken to be in fp8, that of others in 16
bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.link_constants import with_engine_laws
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import Network
from phaze.parallel.serving import Traffic
from phaze.parallel.serving.layer_grid import PASS_TOKENS, Chip, LayerGrid, Served
from phaze.parallel.serving.model_replica import Replica
from phaze.parallel.serving.serving_space import whole_prompts
from phaze.parallel.serving.steady_state import Cycle, chunks_of
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of, system_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.low_precision import Recipe

_MODELS = {
    "deepseek-v3": "deepseek-v3",
    "glm-5": "glm-5",
    "gpt-oss-120b": "gpt-oss-120b",
    "kimi-k2.5": "kimi-k2",
    "llama-3.1-70b": "llama3.1-70b",
    "minimax-m2.5": "minimax-m2",
    "qwen3-235b": "qwen3-235b-a22b",
    "qwen3-32b": "qwen3-32b",
    "qwen3.5-397b": "qwen3.5-397b-a17b",
}
_DENSE = ("llama-3.1-70b", "qwen3-32b")
_RECIPES = {
    "fp8": Recipe.FP8,
    "fp8_block": Recipe.FP8_BLOCKS,
    "nvfp4": Recipe.NVFP4,
    "int4_wo": Recipe.INT4_WEIGHTS,
}
SPECULATIVE = "tokens are speculated"
NO_PRECISION = "the precision is not given"
NO_DEGREES = "degrees or batches are not given"
ALL_AS_WIDTH = "all devices are listed as one tensor-parallel group"
CONTRADICTION = "degrees of attention and of experts make different numbers of devices"
PROMPTS = "prompts, 8,192 tokens in a pass, take more passes than there are tokens to decode"
NO_WORKERS = "how many workers a pool has is not given"
MOST = 1024
"""Sequences of a replica, at most; of more there are few rows."""
TOO_MANY = f"more than {MOST} sequences of a replica"
_BOARD = 8
"""Devices of a board: wider tensor-parallel groups in dated tables are pools whose devices were added up."""
_DRAWN = 0.9
"""Mean length of the requests of InferenceX over the nominal one, drawn evenly from 80 to 100 % of it."""

_DEGREES = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
_NUMBERS = ("isl", "osl", "concurrency", "decode_batch_size", "gpus_likely")


@dataclass(frozen=True, slots=True)
class _Engine:
    """A replica of a model on a system, as requests of one kind see it; `apart`: prompts come from another pool."""

    model: str
    system: str
    recipe: Recipe | None
    cache: CacheFormat | None
    width: int
    shared: int
    traffic: Traffic
    apart: bool


@dataclass(frozen=True, slots=True)
class _Run:
    """One row: an engine, and the sequences in the batch of each replica."""

    engine: _Engine
    batch: float


def token_times(columns: Columns) -> Judged:
    """Seconds per output token after the first, mean over requests."""
    excluded, kept, measured = Counter[str](), list[_Run](), []
    times = columns.numbers("tpot_ms") * 1e-3
    for row, found in enumerate(_runs(columns)):
        if isinstance(found, str):
            excluded[found] += 1
        else:
            kept.append(found)
            measured.append(float(times[row]))
    predicted = _token_s(kept)
    slow = np.isnan(predicted[Fidelity.ANALYTIC])
    if slow.any():
        excluded[PROMPTS] += int(slow.sum())
    judged = {rung: of[~slow] for rung, of in predicted.items()}
    return Judged(np.array(measured)[~slow], judged, dict(excluded))


def _runs(columns: Columns) -> Iterator[_Run | str]:
    """Every row as a run, or why it is left out."""
    texts = (
        "model_family",
        "system",
        "engine",
        "mode",
        "gemm_quant",
        "precision",
        "speculative_decoding",
        "flags",
        "source_kind",
    )
    degrees = {
        f"{pool}{name}": columns.numbers(f"{pool}{name}") for pool in ("", "decode_") for name in _DEGREES
    }
    numbers = {name: columns.numbers(name) for name in _NUMBERS} | degrees
    for row, cells in enumerate(zip(*(columns[name] for name in texts), strict=True)):
        yield _run(
            dict(zip(texts, cells, strict=True)), {name: float(of[row]) for name, of in numbers.items()}
        )


def _run(words: Mapping[str, str], numbers: Mapping[str, float]) -> _Run | str:
    if words["model_family"] not in _MODELS:
        return "a model that is not represented"
    if chip_of(words["system"]) is None or system_of(words["system"]) is None:
        return NO_TEMPLATE
    if words["speculative_decoding"] == "mtp":
        return SPECULATIVE
    whole = not words["gemm_quant"] and words["precision"] == "bf16"
    if words["gemm_quant"] not in _RECIPES and not whole:
        return NO_PRECISION
    apart = words["mode"] == "disagg"
    shape = _shape("decode_" if apart else "", words, numbers)
    if isinstance(shape, str):
        return shape
    width, shared, batch = shape
    drawn = _DRAWN if words["source_kind"].startswith("inferencex") else 1.0
    traffic = Traffic(max(1, int(numbers["isl"] * drawn)), max(2, int(numbers["osl"] * drawn)))
    cache = CacheFormat.FP8 if words["engine"] == "trtllm" else None
    model, recipe = _MODELS[words["model_family"]], _RECIPES.get(words["gemm_quant"])
    return _Run(_Engine(model, words["system"], recipe, cache, width, shared, traffic, apart), batch)


def _shape(pool: str, words: Mapping[str, str], numbers: Mapping[str, float]) -> tuple[int, int, float] | str:
    """Tensor width, replicas that share experts, and sequences of each; or why a row is left out."""
    width, shared, inside, dealt = (numbers[f"{pool}{name}"] for name in _DEGREES)
    shared = 1.0 if np.isnan(shared) else shared
    batch = numbers["decode_batch_size"] if pool else numbers["concurrency"] / shared
    flags = words["flags"].split()
    if "pools_incomplete" in flags:
        return NO_WORKERS
    if np.isnan(width) or np.isnan(batch):
        return NO_DEGREES
    if "degrees_multiplied" in flags:
        width = numbers["gpus_likely"]
    elif words["model_family"] not in _DENSE and not np.isnan(inside) and width * shared != inside * dealt:
        return CONTRADICTION
    if not pool and words["source_kind"] == "inferencex_dated_table" and width > _BOARD:
        return ALL_AS_WIDTH
    if batch > MOST:
        return TOO_MANY
    return int(width), int(shared), max(1.0, batch)


def _token_s(runs: Sequence[_Run]) -> dict[Fidelity, Floats]:
    """Time per output token in s of every run, (rows,) by rung; NaN where prompts leave no pass to decode in."""
    found = {rung: np.full(len(runs), np.nan) for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED)}
    order = sorted(range(len(runs)), key=lambda row: repr(runs[row].engine))
    for _, alike in groupby(order, key=lambda row: runs[row].engine):
        rows = list(alike)
        batches = np.array([runs[row].batch for row in rows])
        engine = runs[rows[0]].engine
        served = Served(engine.model, KvCache.PAGED, engine.cache, engine.recipe)
        for rung, seconds in found.items():
            replica = _replica(engine, served, rung, batches)
            seconds[rows] = steady_token_s(replica, batches, apart=engine.apart)
    return found


def steady_token_s(replica: Replica, batches: Floats, *, apart: bool = False) -> Floats:
    """Seconds per output token in the steady state of a replica, (batches,); NaN where prompts leave no pass.

    `apart`: prompts come from another pool.
    """
    traffic, chunk = replica.grid.traffic, replica.grid.chunks[0]
    chunks = () if apart else chunks_of(traffic, chunk)
    cycle = Cycle(replica, traffic, batches, chunks, not apart, replica.grid.prompts)
    return np.where(cycle.keeps_up, cycle.tpot_s, np.nan)


def _replica(engine: _Engine, served: Served, rung: Fidelity, batches: Floats) -> Replica:
    """The replica of an engine, one stage deep, at batches up to the largest."""
    chip, system = chip_of(engine.system), system_of(engine.system)
    if chip is None or system is None:
        msg = f"{engine.system} has no template"
        raise ValueError(msg)
    most = math.ceil(batches.max())
    return replica_on(
        chip, system.network, rung, served, engine.traffic, most, width=engine.width, shared=engine.shared
    )


def replica_on(
    chip: Architecture,
    network: Network,
    rung: Fidelity,
    served: Served,
    traffic: Traffic,
    most: int,
    *,
    width: int,
    shared: int = 1,
) -> Replica:
    """A replica of `width` chips, one stage deep, for up to `most` sequences; `shared`: replicas that share experts."""
    links = with_engine_laws(network, str(chip.value("family"))) if rung is Fidelity.CALIBRATED else network
    table, prompt = to_table([chip]), traffic.prompt_tokens
    chunk = -(-prompt // -(-prompt // PASS_TOKENS))
    sizes = tuple(dict.fromkeys((chunk, prompt)))
    together = whole_prompts(prompt, PASS_TOKENS, most)
    costed = Chip.alone(CostModel(table, links, rung), table)
    return Replica(LayerGrid(served, costed, width, traffic, sizes, most, shared, together), links, 1)
