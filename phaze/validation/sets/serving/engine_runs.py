"""Models that engines serve to a fixed number of clients: time per output token and to the first one.

A client asks again as soon as it is answered, so that as many sequences are in the batches as there are clients, or as
memory has room for. Pools that prefill and decode apart are judged by their decode pool, whose batch follows from
Little's law: of its clients those are there that do not wait for a first token, which the row tells. The calibrated
rung has the constants of the engines (`arch_templates/engines`), which are fitted to published rows of this set; the
analytic one has none. As many prompt tokens go beside decode as by the engines' defaults. Experts dealt among the ranks
of a tensor group are costed as divided among them. The cache of TensorRT-LLM is taken to be in fp8, that of others in
16 bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby

import numpy as np

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.link_constants import engine_links
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import Network
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.serving import Policy, ServingOptions, Traffic
from phaze.parallel.serving.load.prompt_passes import chunks_of
from phaze.parallel.serving.replicas.chip_costs import Chip
from phaze.parallel.serving.replicas.layer_grid import LayerGrid, Served
from phaze.parallel.serving.replicas.model_replica import Replica
from phaze.parallel.serving.replicas.replica_offers import closed_loop
from phaze.parallel.serving.replicas.steady_state import Cycle
from phaze.parallel.serving.serving_engine import NO_ENGINE, PASS_TOKENS, load_engine
from phaze.parallel.serving.serving_space import whole_prompts
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
_ENGINES = {"trtllm": "tensorrt-llm", "vllm": "vllm", "sglang": "sglang"}
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
NO_WORKERS = "how many workers a pool has is not given"
REPEATS = "equal runs differ by more than 25 % (an option that is not told)"
APART = "the load of the pool that prefills is not given"
PLACES = "clients wait for a place in memory, and what format the cache has there is not given"
_BOARD = 8
"""Devices of a board: wider tensor-parallel groups in dated tables are pools whose devices were added up.

So are those of decode pools: of Kimi K2 on 16 GB200 a pass of 1,024 sequences takes 1.9 ms longer than one of 256, in
which a group that keeps latent vectors whole on every device could not even read those of the others.
"""
_SETTLING = 30
"""Rounds in which the batch of a decode pool settles."""
_DRAWN = 0.9
"""Mean length of the requests of InferenceX over the nominal one, drawn evenly from 80 to 100 % of it."""
_WAVES = 10
"""Requests of a client in a run of InferenceX, all of whose clients begin together (num-prompts of its README)."""

_DEGREES = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
_NUMBERS = (
    "isl",
    "osl",
    "concurrency",
    "decode_batch_size",
    "gpus_likely",
    "ttft_ms",
    "tpot_ms",
    "batch_size",
)


@dataclass(frozen=True, slots=True)
class EngineRun:
    """A replica of a model on a system under an engine, as requests of one kind see it.

    `apart`: prompts come from another pool. `shared`: replicas that share experts.
    """

    model: str
    system: str
    engine: str
    recipe: Recipe | None
    cache: CacheFormat | None
    width: int
    shared: int
    traffic: Traffic
    apart: bool


@dataclass(frozen=True, slots=True)
class RunRow:
    """One row: a run, its clients on each replica, and its measured seconds."""

    run: EngineRun
    clients: float
    first_s: float
    token_s: float


def token_times(columns: Columns) -> Judged:
    """Seconds per output token after the first, mean over requests."""
    excluded, rows = run_rows(columns)
    measured = np.array([row.token_s for row in rows])
    predicted = {rung: served_times(rows, rung)[0] for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED)}
    return Judged(measured, predicted, dict(excluded))


def first_times(columns: Columns) -> Judged:
    """Seconds to the first token, mean over requests, those that all ask at once in the beginning among them."""
    excluded, kept = _whole_rows(columns)
    measured = np.array([row.first_s for row in kept])
    predicted = {rung: served_times(kept, rung)[1] for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED)}
    return Judged(measured, predicted, dict(excluded))


def throughputs(columns: Columns) -> Judged:
    """Output tokens per second of all clients of a replica, by Little's law from what a request takes.

    The source derives them from its two times in the same way.
    """
    excluded, kept = _whole_rows(columns)
    clients = np.array([row.clients for row in kept])
    outputs = np.array([float(row.run.traffic.output_tokens) for row in kept])

    def served(first_s: Floats, token_s: Floats) -> Floats:
        found: Floats = clients * outputs / (first_s + (outputs - 1) * token_s)
        return found

    measured = served(np.array([r.first_s for r in kept]), np.array([r.token_s for r in kept]))
    times = {rung: served_times(kept, rung) for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED)}
    return Judged(measured, {rung: served(each[1], each[0]) for rung, each in times.items()}, dict(excluded))


def _whole_rows(columns: Columns) -> tuple[Counter[str], list[RunRow]]:
    """Rows of which one pool does everything, and nobody waits for a place."""
    excluded, rows = run_rows(columns)
    kept = []
    for row, queued in zip(rows, served_times(rows, Fidelity.ANALYTIC)[2] > 0, strict=True):
        if row.run.apart or queued:
            excluded[APART if row.run.apart else PLACES] += 1
        else:
            kept.append(row)
    return excluded, kept


def run_rows(columns: Columns) -> tuple[Counter[str], list[RunRow]]:
    """The rows that can be represented, and how many are left out by reason."""
    excluded, kept = Counter[str](), []
    for found in _runs(columns):
        if isinstance(found, str):
            excluded[found] += 1
        else:
            kept.append(found)
    return excluded, kept


def _runs(columns: Columns) -> Iterator[RunRow | str]:
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
    readings = list(zip(numbers["ttft_ms"].tolist(), numbers["tpot_ms"].tolist(), strict=True))
    flags = (words.split() for words in columns["flags"])
    doubtful = {told for told, words in zip(readings, flags, strict=True) if "repeats_differ" in words}
    for row, cells in enumerate(zip(*(columns[name] for name in texts), strict=True)):
        words = dict(zip(texts, cells, strict=True))
        found = _run(words, {name: float(of[row]) for name, of in numbers.items()})
        # The same reading may stand under several spellings of one configuration, of which one is flagged.
        yield REPEATS if not isinstance(found, str) and readings[row] in doubtful else found


def _run(words: Mapping[str, str], numbers: Mapping[str, float]) -> RunRow | str:
    unknown = [
        what for what, known in (("model_family", _MODELS), ("engine", _ENGINES)) if words[what] not in known
    ]
    if unknown:
        return f"{unknown[0].replace('_family', '')} is not represented"
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
    width, shared, clients = shape
    drawn = _DRAWN if words["source_kind"].startswith("inferencex") else 1.0
    traffic = Traffic(max(1, int(numbers["isl"] * drawn)), max(2, int(numbers["osl"] * drawn)))
    run = EngineRun(
        model=_MODELS[words["model_family"]],
        system=words["system"],
        engine=_ENGINES[words["engine"]],
        recipe=_RECIPES.get(words["gemm_quant"]),
        cache=CacheFormat.FP8 if words["engine"] == "trtllm" else None,
        width=width,
        shared=shared,
        traffic=traffic,
        apart=apart,
    )
    return RunRow(run, clients, numbers["ttft_ms"] * 1e-3, numbers["tpot_ms"] * 1e-3)


def _shape(pool: str, words: Mapping[str, str], numbers: Mapping[str, float]) -> tuple[int, int, float] | str:
    """Tensor width, replicas that share experts, and clients of each; or why a row is left out."""
    width, shared, inside, dealt = (numbers[f"{pool}{name}"] for name in _DEGREES)
    shared = 1.0 if np.isnan(shared) else shared
    flags = words["flags"].split()
    if "pools_incomplete" in flags:
        return NO_WORKERS
    multiplied = "degrees_multiplied" in flags
    if multiplied:  # of the two the one that is above 1 stands for the devices squared
        devices = numbers["gpus_likely"]
        width, shared = (width, devices) if shared > 1 else (devices, shared)
    if not (pool or multiplied) and width == shared and width * shared > _BOARD and "sxm" in words["system"]:
        width = (
            1.0  # more devices than a board has: each of the data-parallel ones was counted as a tensor group
        )
        inside, dealt = 1.0, shared
    clients = numbers["decode_batch_size"] if pool else numbers["concurrency"] / shared
    if not pool and "batch_not_concurrency_over_dp" in flags:  # clients of several instances
        clients = numbers["batch_size"]
    if np.isnan(width) or np.isnan(clients):
        return NO_DEGREES
    expert = words["model_family"] not in _DENSE and not np.isnan(inside)
    if expert and not multiplied and width * shared != inside * dealt:
        return CONTRADICTION
    if width > _BOARD and (pool or words["source_kind"] == "inferencex_dated_table"):
        return ALL_AS_WIDTH
    return int(width), int(shared), max(1.0, clients)


def served_times(rows: Sequence[RunRow], rung: Fidelity) -> Floats:
    """Seconds per output token, to the first one, and of these waiting for a place, (3, rows).

    The last two are NaN and zero in pools that only decode.
    """
    found = np.zeros((3, len(rows)))
    order = sorted(range(len(rows)), key=lambda row: repr(rows[row].run))
    for _, alike in groupby(order, key=lambda row: rows[row].run):
        some = list(alike)
        asked = tuple((rows[row].clients, rows[row].first_s) for row in some)
        found[:, some] = _times(rows[some[0]].run, asked, rung)
    return found


@cache
def _times(run: EngineRun, rows: tuple[tuple[float, float], ...], rung: Fidelity) -> Floats:
    """Times of some clients of a run, (3, rows): both metrics, and the search for bad rows, ask for them."""
    clients, firsts = (np.array(column) for column in zip(*rows, strict=True))
    engine = load_engine(run.engine) if rung is Fidelity.CALIBRATED else NO_ENGINE
    policy = load_engine(run.engine).policies[0]
    replica = replace(engine_replica(run, rung, math.ceil(clients.max())), overheads=engine.overheads)
    if run.apart:
        decoding = decode_cycle(replica, clients, firsts)
        return np.stack([decoding.tpot_s, np.full(len(clients), np.nan), np.zeros(len(clients))])
    cycle, waiting = engine_cycle(replica, clients, policy)
    return np.stack([cycle.tpot_s, mean_first_s(cycle, clients, waiting), waiting])


def decode_cycle(replica: Replica, clients: Floats, first_s: Floats) -> Cycle:
    """The cycle of a decode pool whose clients, (N,), wait so long for their first tokens elsewhere, (N,).

    b sequences decode of c clients: b (F + T(b)) = c T(b), with T the time of all tokens after the first.
    """
    traffic, batch = replica.grid.traffic, clients
    for _ in range(_SETTLING):
        later_s = Cycle(replica, traffic, batch).tpot_s * traffic.later_tokens
        batch = clients * later_s / (first_s + later_s)
    return Cycle(replica, traffic, batch)


def engine_cycle(replica: Replica, clients: Floats, policy: Policy = Policy.CHUNKED) -> tuple[Cycle, Floats]:
    """The cycle that so many clients of a replica make, (N,), and what a request waits for a place, s."""
    grid, most = replica.grid, math.ceil(clients.max())
    chunks, mixed = chunks_of(grid.traffic, grid.chunks[0]), policy is Policy.CHUNKED
    saturated = Cycle(replica, grid.traffic, np.arange(1.0, most + 1), chunks, mixed, grid.prompts)
    room = float(hbm_capacity_bytes(grid.chip.table)[0]) * ServingOptions().memory_share
    return closed_loop(saturated, clients, room)


def mean_first_s(cycle: Cycle, clients: Floats, waiting_s: Floats) -> Floats:
    """Mean time to first token of a run, (N,): one request in ten is of the wave in the beginning."""
    later = cycle.prefill_s + waiting_s
    wave = first_wave_s(cycle, clients)
    return cycle.replica.overheads.request_s + later + (wave - later) / _WAVES


def first_wave_s(cycle: Cycle, clients: Floats) -> Floats:
    """Mean time to first token of clients (N,) who all ask at once: passes full of prompts, one after the other."""
    full = np.minimum(float(cycle.most_prompts), clients)
    beside = cycle.batch / 2 if cycle.mixed else np.zeros(len(clients))
    each = [replace(chunk, prompts=full if len(cycle.chunks) == 1 else 1) for chunk in cycle.chunks]
    context = cycle.traffic.mean_context
    seconds = sum(cycle.replica.pass_costs(beside, context, chunk)[..., 0].sum(axis=-1) for chunk in each)
    found: Floats = seconds * (np.ceil(clients / full) + 1) / 2
    return found


def steady_token_s(replica: Replica, clients: Floats) -> Floats:
    """Seconds per output token that so many clients of a replica see, (N,)."""
    found: Floats = engine_cycle(replica, clients)[0].tpot_s
    return found


@cache
def engine_replica(run: EngineRun, rung: Fidelity, most: int) -> Replica:
    """The replica of a run, one stage deep, at batches up to the largest."""
    chip, system = chip_of(run.system), system_of(run.system)
    if chip is None or system is None:
        msg = f"{run.system} has no template"
        raise ValueError(msg)
    served = Served(run.model, KvCache.PAGED, run.cache, run.recipe)
    return replica_on(
        chip, system.network, rung, served, run.traffic, most, width=run.width, shared=run.shared
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
    links = engine_links(network, str(chip.value("family")), fitted=rung is Fidelity.CALIBRATED)
    table, prompt = to_table([chip]), traffic.prompt_tokens
    chunk = -(-prompt // -(-prompt // PASS_TOKENS))
    sizes = tuple(dict.fromkeys((chunk, prompt)))
    together = whole_prompts(prompt, PASS_TOKENS, most)
    costed = Chip.alone(CostModel(table, links, rung), table)
    return Replica(LayerGrid(served, costed, width, traffic, sizes, most, shared, together), links, 1)
