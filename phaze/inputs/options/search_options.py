"""Options of `dse run` and `dse sweep`: budgets, spaces, and how a search works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.inputs.options.answer_options import JsonOptions
from phaze.inputs.options.offered_values import (
    DEVICES,
    METRICS,
    NODES,
    OBJECTIVES,
    REDUNDANT,
    SERVING_DEVICES,
    SKEW,
    WORKLOAD,
    WORKLOAD_AT_HAND,
)
from phaze.inputs.options.option_model import Effect, Options, Packaged, option
from phaze.inputs.options.task_options import EconomicOptions, PassTaskOptions

if TYPE_CHECKING:
    from phaze.hardware.spaces.design_space import DesignSpace
    from phaze.inputs.workload_sources import Source
    from phaze.quantity import Quantity


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(Options):
    """Limits of one accelerator."""

    power: Quantity | None = option(
        None, "Power budget of one accelerator, for instance 400W; --power-means says which power is meant."
    )
    power_means: str = option(
        "tdp",
        "What --power limits: tdp (the worst case, at full load) or sustained (what the board draws on the workload "
        "under its plan; clocks are lowered until it holds).",
        offers=("tdp", "sustained"),
    )
    area: Quantity | None = option(None, "Silicon area budget of one accelerator, for instance 800mm2.")
    power_density: Quantity | None = option(
        None, "Power per silicon area of the package, for instance 0.5W/mm2."
    )
    dvfs: bool = option(
        False,
        "Lower the clock of a design until the power budget holds, from the highest that the space offers.",
        "--dvfs",
    )
    tdp_margin: float = option(1.0, "TDP over the power at full load.", least=0.0)


@dataclass(frozen=True, kw_only=True)
class SpaceOptions(Options):
    """The architectures that are looked at."""

    space: str | Path | DesignSpace = option(
        "default", "Built-in design space or YAML file.", offers=Packaged.SPACES
    )
    node: str | None = option(
        None,
        "Process node, for instance N5 (default: the space's own); clocks of the space that are above the nominal one "
        "of another node are left out.",
        offers=NODES,
    )
    clock: Quantity | None = option(
        None,
        "Clock of every design, for instance 1.2GHz, be it among those of the space or not (default: the space's own).",
    )
    fix: Sequence[str] | None = option(
        None,
        "Hold a field of the space: tensor_cores=8, hbm=hbm3x6; one that it varies at one of its values.",
        metavar="FIELD=VALUE",
        taken="Mapping[str, object] | Sequence[str] | None",
        meaning='Hold fields of the space, `{"tensor_cores": 8, "hbm": "hbm3x6"}`.',
    )


@dataclass(frozen=True, kw_only=True)
class SearchedOptions(JsonOptions):
    """How a search works, and where its run is kept."""

    seed: int = option(0, "Seed of everything random.", least=0)
    workers: int = option(
        1, "Processes that do the work; they change no answer.", least=1, effect=Effect.NOTHING
    )
    executor: str | None = option(
        None,
        "Let the workers of a Dask cluster do it: dask://HOST:PORT.",
        metavar="ADDRESS",
        effect=Effect.NOTHING,
    )
    out: Path | None = option(
        None,
        "Run directory (default: ./results/WORKLOAD-UTCTIME).",
        taken="str | Path | None",
        effect=Effect.NOTHING,
        meaning="Run directory to keep (default: nothing is written).",
    )
    resume: bool = option(
        False, "Continue in a run directory that holds something.", "--resume", effect=Effect.NOTHING
    )
    no_cache: bool = option(
        False,
        "Neither read nor write the cache that all runs share.",
        "--no-cache",
        effect=Effect.NOTHING,
        in_python=False,
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(SearchedOptions, SpaceOptions, BudgetOptions, EconomicOptions, PassTaskOptions):
    """Of `dse run` and `phaze.explore`."""

    workload: Sequence[Source] = option(
        ...,
        f"{WORKLOAD} Given several times: one design for all of them.",
        *("--workload", "-w"),
        metavar="MODEL",
        offers=Packaged.WORKLOADS,
        taken="Source | Sequence[Source]",
        meaning=WORKLOAD_AT_HAND,
    )
    devices: int | None = option(
        None,
        f"Accelerators the workload is spread over (default: {DEVICES}; with --serve at most {SERVING_DEVICES}).",
        least=1,
    )
    objective: str = option(
        "throughput",
        "What is best: throughput, throughput_per_tdp, tdp, area, energy_per_sample, memory, "
        "cost_per_chip, cost_per_sample, cost_per_million_tokens, carbon_per_sample or "
        "carbon_per_million_tokens. With --serve: throughput, tokens_per_s_per_w or cost_per_million_tokens.",
        offers=(*OBJECTIVES, "tokens_per_s_per_w"),
    )
    axes: str | None = option(
        None,
        "Frontier on these metrics besides the objective, for instance throughput,area.",
        offers=METRICS,
        several=True,
        taken="str | Sequence[str] | None",
        meaning="Frontier on these metrics besides the objective.",
    )
    strategy: str = option(
        "certified",
        "How to search: certified (with a proof), or without one phaze, wham, random, tpe, gp, nsga2, cmaes, or one of "
        "another package.",
        offers=("certified", "phaze", "wham", "random", "tpe", "gp", "nsga2", "cmaes"),
    )
    evaluations: int | None = option(None, "Architectures a strategy may evaluate (default: 200).", least=1)
    designs: str | None = option(
        None,
        "Designs for the stages of a pipeline: one (default), 2 (certified), or with wham per-stage; of a service 2: "
        "one for prefill and one for decode.",
        offers=("one", "2", "per-stage"),
    )
    top_k: int | None = option(
        None, "With --strategy wham: designs kept for each stage (default: 10).", least=1
    )
    robust: bool = option(
        False, "Rank near-optimal designs by how they do if the model's constants are wrong.", "--robust"
    )
    combine: str = option(
        "geomean",
        "Score of several workloads: geomean, mean or worst of throughputs over their own optima, or throughput.",
        offers=("geomean", "mean", "worst", "throughput"),
    )
    weight: Sequence[str] | None = option(
        None,
        "Weight of one of several workloads.",
        metavar="NAME=NUMBER",
        taken="Mapping[str, float] | Sequence[str] | None",
        meaning='Weights of several workloads, `{"gpt3": 2}`.',
    )
    min_throughput: float | None = option(None, "Least throughput of every workload, samples/s.", least=0.0)
    max_latency: Quantity | None = option(None, "Longest iteration (prefill: batch), for instance 2s.")
    cluster_power: Quantity | None = option(
        None, "Power budget of all devices, whose number is searched: 1MW."
    )
    cluster_cost: float | None = option(
        None, "Budget for making all devices, in USD; their number is searched: 20e6."
    )
    cluster_overhead: float = option(1.0, "Power of the cluster over the power of its accelerators.")
    tokens: float | None = option(None, "Tokens to train on: days, energy and money of the run.")
    samples: float | None = option(None, "Samples to train on, instead of --tokens.")
    serve: str | None = option(
        None,
        "Look for the chip that serves the workload: saturated, rate=REQUESTS_PER_S or concurrency=CLIENTS.",
        metavar="LOAD",
        offers=("saturated", "rate=", "concurrency="),
        in_python=False,
    )
    prompt: int | None = option(
        None, "With --serve: tokens of a prompt (default: 2048).", least=1, in_python=False
    )
    output_tokens: int | None = option(
        None, "With --serve: tokens of an answer (default: 256).", least=2, in_python=False
    )
    ttft: Quantity | None = option(
        None, "With --serve: target for the mean time to first token, for instance 2s.", in_python=False
    )
    tpot: Quantity | None = option(
        None,
        "With --serve: target for the mean time per output token after it, for instance 50ms.",
        in_python=False,
    )
    disaggregate: bool | None = option(
        None,
        "With --serve: separate pools of devices for prefill and decode, or not (default: the better).",
        "--disaggregate/--no-disaggregate",
        in_python=False,
    )
    engine: str | Path | None = option(
        None,
        "With --serve: inference engine whose time per pass, pass size and policies count: built-in name or YAML file.",
        offers=Packaged.ENGINES,
        metavar="NAME|FILE",
        in_python=False,
    )
    expert_skew: float | None = option(None, f"With --serve: {SKEW[0].lower()}{SKEW[1:]}", in_python=False)
    redundant_experts: int | None = option(
        None, f"With --serve: {REDUNDANT[0].lower()}{REDUNDANT[1:]}", least=0, in_python=False
    )
    time_limit: Quantity = option(
        "60s", "Stop after this long, for instance 10s or 2min.", effect=Effect.REACH
    )
    gap: float = option(0.0, "Stop as soon as this gap is proven.", least=0.0)


@dataclass(frozen=True, kw_only=True)
class SweepOptions(SearchedOptions, SpaceOptions, BudgetOptions, EconomicOptions, PassTaskOptions):
    """Of `dse sweep` and `phaze.sweep`."""

    trials: int = option(
        100, "Designs to try, including those of earlier runs.", least=1, effect=Effect.REACH
    )
    sampler: str = option(
        "tpe",
        "Sampler of Optuna: tpe, random, nsga2, gp or cmaes; the last two need extras of these names.",
        offers=("tpe", "random", "nsga2", "gp", "cmaes"),
    )
    objectives: str = option(
        "throughput,tdp",
        "Metrics, separated by commas.",
        offers=METRICS,
        several=True,
        taken="str | Sequence[str]",
        meaning="Metrics by name.",
    )
    storage: str | None = option(
        None,
        "Database URL, sqlite:///FILE or postgresql://... (default: a journal file in the run directory).",
        metavar="URL",
        effect=Effect.NOTHING,  # it may hold a password, too
        meaning="Database URL of the study (default: a journal file in `out`, or memory).",
    )
    study: str = option("sweep", "Name of the study in its storage.")
    batch: int = option(
        8,
        "Trials that are sampled together: the most that can be evaluated at a time.",
        least=1,
        most=10_000,
    )
    join: bool = option(
        False,
        "Begin or continue the study together with all hosts that run the same command.",
        "--join",
        effect=Effect.NOTHING,
    )
    resume: bool = option(
        False,
        "Continue the study, in a run directory that holds something.",
        "--resume",
        effect=Effect.NOTHING,
    )
