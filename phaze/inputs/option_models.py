"""Options of the verbs that answer questions, each described once: type, default, bounds, meaning.

The command line, the functions of Python, what a run directory keeps of a question, and the reference pages are derived
from these models. Nothing heavy is imported: `dse --help` needs them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from phaze.hardware.architecture import Architecture
    from phaze.hardware.cluster_network import Network
    from phaze.hardware.spaces.design_space import DesignSpace
    from phaze.inputs.task_inputs import Source
    from phaze.parallel.framework import Framework
    from phaze.parallel.plan_choices import Plans
    from phaze.quantity import Quantity

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


class Effect(Enum):
    """How far a change of an option can reach."""

    ANSWER = "answer"
    """To what is answered: a run goes on only under the same value."""
    REACH = "reach"
    """To how far a search gets: it may go on under another value."""
    NOTHING = "nothing"
    """To where the answer goes, who is told, who works for it."""


class Packaged(Enum):
    """Kinds of packaged files whose names a shell offers."""

    WORKLOADS = "workloads"
    ARCHS = "archs"
    SPACES = "spaces"
    NETWORKS = "networks"
    FRAMEWORKS = "frameworks"
    PLANS = "plans"
    FAILURES = "failures"
    ENGINES = "engines"


@dataclass(frozen=True)
class Option:
    """One option, as every place that has it describes it."""

    help: str
    flags: tuple[str, ...] = ()
    """As typed, where that is not `--name-with-dashes`."""
    least: float | None = None
    most: float | None = None
    metavar: str | None = None
    offers: tuple[str, ...] | Packaged = ()
    """Values that a shell offers."""
    several: bool = False
    """Whether such values are joined by commas."""
    taken: str | None = None
    """Annotation of the argument in Python, where that takes more than what the model holds."""
    meaning: str | None = None
    """Meaning in Python, where that differs from `help`."""
    effect: Effect = Effect.ANSWER
    in_python: bool = True
    """Whether the function of Python has it, too."""


def option(default: Any, help: str, *flags: str, **more: Any) -> Any:  # noqa: ANN401 - a field of any type
    """A field of an option model; `default`: `...` where a value has to be given."""
    told = {"option": Option(help, flags, **more)}
    return field(metadata=told) if default is ... else field(default=default, metadata=told)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Values of the options of one verb."""

    @classmethod
    def described(cls) -> Mapping[str, tuple[Field[Any], Option]]:
        """Every option by its name in Python, in the order of the model."""
        return {one.name: (one, one.metadata["option"]) for one in fields(cls)}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Defaults of the options by name, of those that have one."""
        return {one.name: one.default for one in fields(cls) if one.default is not MISSING}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options among some values; others are left alone, missing ones are at their defaults."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})

    @property
    def values(self) -> dict[str, Any]:
        """Every value by the name of its option."""
        return {name: getattr(self, name) for name in self.described()}

    @property
    def kept(self) -> dict[str, Any]:
        """Options that a run directory keeps: values that change the answer, or how far a search gets."""
        return self._without(Effect.NOTHING)

    @property
    def answering(self) -> dict[str, Any]:
        """Values under which alone a run goes on."""
        return self._without(Effect.NOTHING, Effect.REACH)

    def _without(self, *effects: Effect) -> dict[str, Any]:
        described = self.described()
        return {
            name: value for name, value in self.values.items() if described[name][1].effect not in effects
        }


_WORKLOAD = "Built-in name, YAML, ONNX or .pt2 file, or hf:CONFIG.JSON."
_RECIPES = (
    *("none", "fp8", "fp8-early", "fp8-rows", "fp8-blocks", "mxfp8", "nvfp4"),
    *("int8", "fp8-weights", "int8-weights", "int4-weights", "mxfp4-weights"),
    *("mxfp4-experts", "mxfp4-mxfp8-experts", "nvfp4-experts"),
)
_CACHE_FORMAT = "Format of the key-value cache: fp8 or int8 (default: the precision of the model)."
_CACHE_FORMATS = ("fp8", "int8")
_PARTS = (
    "Devices of a tensor group that hold the cache of a part of the tokens each, where it would repeat key-value heads "
    "(default: of contexts from 8,192 tokens on the better of none and all)."
)
_SKEW = (
    "Exponent of the power law by which tokens want some experts more than others, for instance 0.6 (default: all are "
    "wanted alike)."
)
_REDUNDANT = (
    "Copies of the most wanted experts, in all, with experts dealt by load (default: none, dealt by number)."
)
_WORKLOAD_AT_HAND = "Built-in name, YAML, ONNX or .pt2 file, `hf:CONFIG.JSON`, or a workload at hand."


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Options):
    """A workload on a cluster, under software that runs plans of a space."""

    workload: Sequence[Source] = option(
        ...,
        _WORKLOAD,
        *("--workload", "-w"),
        metavar="MODEL",
        offers=Packaged.WORKLOADS,
        taken="Source",
        meaning=_WORKLOAD_AT_HAND,
    )
    devices: int | None = option(DEVICES, "Accelerators the workload is spread over.", least=1, taken="int")
    global_batch: int | None = option(None, "Samples per iteration (default: the workload's own).", least=1)
    plans: str | Path | Plans = option(
        "full",
        "Space of plans: full (what can be launched), any (ragged degrees, too), layers (recompute layer by layer), "
        "branches (side by side), swapping (with the hosts' memory), megatron, phaze, or a YAML file.",
        metavar="NAME|FILE",
        offers=Packaged.PLANS,
    )
    framework: str | Path | Framework = option(
        "ideal",
        "Training software, built-in name or YAML file: what it hides, costs and can run; ideal is perfect software.",
        offers=Packaged.FRAMEWORKS,
    )
    network: str | Path | Network = option(
        "default", "Built-in network or YAML file.", offers=Packaged.NETWORKS
    )
    attention: str | None = option(
        None,
        "Attention kernels: flash, unfused or eager (default: the framework's; without one flash).",
        offers=("flash", "unfused", "eager"),
    )
    fusion: str | None = option(
        None,
        "Which operators are fused: all, none, or of epilogue, bias, bias-gradient, norm-residual, softmax, "
        "elementwise (default: the framework's).",
    )
    recipe: str | None = option(
        None,
        "Formats of linear layers. In few bits where arrays are faster at it: fp8, "
        "fp8-early, fp8-rows, fp8-blocks, mxfp8, nvfp4, "
        "in inference int8; weights alone, on any arrays: fp8-, int8-, int4- or mxfp4-weights; of experts alone, in "
        "inference: mxfp4-, mxfp4-mxfp8- or nvfp4-experts; or none "
        "(default: fp8 on precision bf16+fp8).",
        offers=_RECIPES,
    )
    rung: str = option(
        "analytic",
        "Rung of the cost model: analytic, calibrated on the chip's measured family, or ideal (hardware alone).",
        offers=("analytic", "calibrated", "ideal"),
    )
    calibration: Path | None = option(
        None,
        "Constants from dse calibrate, for chips of the family that was measured; implies --rung calibrated.",
        metavar="FILE",
        taken="str | Path | None",
    )


@dataclass(frozen=True, kw_only=True)
class EconomicOptions(Options):
    """Figures behind money and carbon; `dse explain NAME` tells each with its source."""

    electricity_price: float | None = option(None, "USD per kWh (default: 0.08).")
    pue: float | None = option(None, "Power usage effectiveness of the site (default: 1.10).")
    carbon_intensity: Quantity | None = option(
        None, "kg CO2e per kWh, or a region such as france (default: 0.369, USA)."
    )
    volume: float | None = option(None, "Chips that share the cost of design and masks (default: 100,000).")
    rent: float | None = option(
        None, "USD per device and hour: money is this rent instead of owning a system."
    )
    economics: str | Path | None = option(
        None,
        "YAML file of figures behind money and carbon, by the names that dse explain knows.",
        metavar="FILE",
    )


@dataclass(frozen=True, kw_only=True)
class BindOptions(Options):
    """Sizes that a file leaves open."""

    bind: Sequence[str] | None = option(
        None,
        "Sizes of a file's symbolic dimensions.",
        metavar="NAME=SIZE,...",
        taken="Mapping[str, int] | Sequence[str] | None",
        meaning='Sizes of a file\'s symbolic dimensions, `{"seq": 2048}`.',
    )


@dataclass(frozen=True, kw_only=True)
class PassOptions(Options):
    """Which passes of a model run."""

    mode: str = option(
        "training",
        "What an iteration is: training, prefill (one forward pass) or decode (one token more of every sequence).",
        offers=("training", "prefill", "decode"),
    )
    context: int | None = option(
        None, "Tokens in the key-value cache before the pass (decode: the sequence length).", least=1
    )
    kv_cache: str = option(
        "contiguous",
        "Layout of the key-value cache: contiguous or paged.",
        offers=("contiguous", "paged"),
    )
    kv_cache_format: str | None = option(None, _CACHE_FORMAT, offers=_CACHE_FORMATS)


@dataclass(frozen=True, kw_only=True)
class PassTaskOptions(PassOptions, BindOptions, TaskOptions):
    """Such a task in any pass of a model."""


_DEGREE = "Fix this degree (default: the best)."


@dataclass(frozen=True, kw_only=True)
class PlanChoices(Options):
    """Choices of a training plan that may be fixed; the search decides the others."""

    data_parallel: int | None = option(None, _DEGREE, least=1, metavar="N")
    tensor_parallel: int | None = option(None, _DEGREE, least=1, metavar="N")
    pipeline_parallel: int | None = option(None, _DEGREE, least=1, metavar="N")
    context_parallel: int | None = option(None, _DEGREE, least=1, metavar="N")
    expert_parallel: int | None = option(None, _DEGREE, least=1, metavar="N")
    sequence_parallel: bool | None = option(
        None,
        "Divide tokens over the tensor group between its products, or not (default: the better).",
        "--sequence-parallel/--no-sequence-parallel",
    )
    whole: str | None = option(
        None,
        "Layers whose weights every device of a tensor group keeps whole: any (the best), none (default), or "
        "embedding, attention, mlp, head joined by +.",
        offers=("any", "none", "embedding", "attention", "mlp", "head"),
    )
    microbatch: int | None = option(
        None, "Fix the samples of a microbatch (default: the best).", least=1, metavar="N"
    )
    schedule: str | None = option(
        None,
        "Pipeline schedule: gpipe, 1f1b, interleaved, breadth-first, zb-h1, zb-h2, zb-v or dualpipe (default: the best "
        "of --plans).",
        offers=("gpipe", "1f1b", "interleaved", "breadth-first", "zb-h1", "zb-h2", "zb-v", "dualpipe"),
    )
    chunks: int | None = option(
        None, "Parts of the model on each device, under interleaving (default: the best).", least=1
    )
    recompute: str | None = option(
        None,
        "Activations worked out again in the backward pass: none, selective or full (default: the least that fits).",
        offers=("none", "selective", "full"),
    )
    zero: int | None = option(
        None,
        "What replicas divide (ZeRO): 0 nothing, 1 optimizer state, 2 gradients too, 3 weights too (default: "
        "the best).",
        least=0,
        most=3,
    )
    order: str | None = option(
        None,
        "Which ranks are neighbours on the network, nearest first: tensor-context-data-pipeline or "
        "tensor-context-pipeline-data (default: the best).",
        offers=("tensor-context-data-pipeline", "tensor-context-pipeline-data"),
    )
    offload: str | None = option(
        None,
        "What the host's memory holds: none (default), any (the best), or of weights, activations, optimizer.",
        metavar="WHAT+...",
        offers=("none", "any", "weights", "activations", "optimizer"),
    )


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
    dvfs: bool = option(False, "Lower the clock of a design until the power budget holds.", "--dvfs")
    tdp_margin: float = option(1.0, "TDP over the power at full load.", least=0.0)


@dataclass(frozen=True, kw_only=True)
class SpaceOptions(Options):
    """The architectures that are looked at."""

    space: str | Path | DesignSpace = option(
        "default", "Built-in design space or YAML file.", offers=Packaged.SPACES
    )
    node: str | None = option(None, "Process node, for instance N5 (default: the space's own).", offers=NODES)
    clock: Quantity | None = option(None, "Clock, for instance 1.2GHz (default: the space's own).")
    fix: Sequence[str] | None = option(
        None,
        "Hold a field of the space: tensor_cores=8, hbm=hbm3x6.",
        metavar="FIELD=VALUE",
        taken="Mapping[str, object] | Sequence[str] | None",
        meaning='Hold fields of the space, `{"tensor_cores": 8, "hbm": "hbm3x6"}`.',
    )


_ARCH_AT_HAND = "str | Path | Architecture | Design | FrontierPoint | ScorePoint | Explored | Evaluated"


@dataclass(frozen=True, kw_only=True)
class OneArchOptions(Options):
    """One architecture that is given."""

    arch: str | Path | Architecture = option(
        ...,
        "Built-in chip, YAML file, run directory or RUN:ID.",
        *("--arch", "-a"),
        offers=Packaged.ARCHS,
        taken=_ARCH_AT_HAND,
        meaning="Built-in chip, YAML file, run directory, RUN:ID, an `Architecture`, or a result of another function.",
    )


@dataclass(frozen=True, kw_only=True)
class SeveralArchOptions(Options):
    """Architectures that are given side by side."""

    arch: Sequence[str | Path | Architecture] = option(
        ...,
        "Chips, YAML files or run directories.",
        *("--arch", "-a"),
        offers=Packaged.ARCHS,
        taken=f"Sequence[{_ARCH_AT_HAND}]",
        meaning="Built-in chips, YAML files, run directories, RUN:IDs, objects `Architecture`, or results.",
    )


@dataclass(frozen=True, kw_only=True)
class JsonOptions(Options):
    """How an answer is printed."""

    json: bool = option(
        False,
        "Print the result document to stdout and nothing else.",
        "--json",
        effect=Effect.NOTHING,
        in_python=False,
    )
    quiet: bool = option(
        False,
        "No progress and no remarks on stderr.",
        *("--quiet", "-q"),
        effect=Effect.NOTHING,
        in_python=False,
    )


@dataclass(frozen=True, kw_only=True)
class KeptOptions(JsonOptions):
    """Where an answer that takes a moment is kept."""

    out: Path | None = option(
        None,
        "Keep the answer in this folder (default: print it only).",
        taken="str | Path | None",
        effect=Effect.NOTHING,
        meaning="Folder to keep the answer in (default: nothing is written).",
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
        f"{_WORKLOAD} Given several times: one design for all of them.",
        *("--workload", "-w"),
        metavar="MODEL",
        offers=Packaged.WORKLOADS,
        taken="Source | Sequence[Source]",
        meaning=_WORKLOAD_AT_HAND,
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
        "Designs for the stages of a pipeline: one (default), 2 (certified), or with wham per-stage.",
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
    expert_skew: float | None = option(None, f"With --serve: {_SKEW[0].lower()}{_SKEW[1:]}", in_python=False)
    redundant_experts: int | None = option(
        None, f"With --serve: {_REDUNDANT[0].lower()}{_REDUNDANT[1:]}", least=0, in_python=False
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


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(KeptOptions, PlanChoices, EconomicOptions, PassTaskOptions, OneArchOptions):
    """Of `dse evaluate` and `phaze.evaluate`."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions(KeptOptions, EconomicOptions, PassTaskOptions, SeveralArchOptions):
    """Of `dse compare` and `phaze.compare`."""


_ON_FAILURE = ("drop", "ntp", "ntp-power")


@dataclass(frozen=True, kw_only=True)
class FailureOptions(Options):
    """How devices fail, and what is done about it."""

    failures: str | Path | None = option(
        None,
        "Plan for goodput: how devices fail and restart, built-in record (llama3-2024) or YAML file.",
        offers=Packaged.FAILURES,
        metavar="NAME|FILE",
    )
    on_failure: str = option(
        "drop",
        "What replicas with failed devices do: drop (they wait), ntp (narrower groups, fewer samples) or ntp-power "
        "(the same at raised clocks).",
        offers=_ON_FAILURE,
    )


@dataclass(frozen=True, kw_only=True)
class ConvergenceOptions(Options):
    """What a sample of a larger batch is worth, and which batches there are to choose from."""

    noise_scale: str | None = option(
        None,
        "Plan for progress, not for samples: the gradient noise scale in samples, in tokens (14e6tokens), or own: "
        "the workload's published one.",
        metavar="SAMPLES|own",
        offers=("own",),
        taken="str | float | None",
    )
    batch_range: str | None = option(
        None,
        "Choose the global batch, too, of LOW and its doublings up to HIGH; needs --noise-scale.",
        metavar="LOW:HIGH",
    )


_OF_POOLS = "Leave it out: every pool of the fleet has its own."
_NOT_OF_POOLS = "Leave it out: pools of unlike chips have none in common."
_FLEET_OBJECTIVES = ("throughput", "cost_per_sample", "energy_per_sample")


@dataclass(frozen=True, kw_only=True)
class PlanOptions(
    KeptOptions, ConvergenceOptions, FailureOptions, BindOptions, PlanChoices, TaskOptions, OneArchOptions
):
    """Of `dse plan` and `phaze.plan`."""


@dataclass(frozen=True, kw_only=True)
class PlanPoolsOptions(KeptOptions, BindOptions, PlanChoices, TaskOptions):
    """Of `dse plan pools` and `phaze.plan_pools`."""

    fleet: Path = option(
        ...,
        "Pools of unlike devices: a YAML file with their chips, counts, networks, zones and prices.",
        metavar="FILE",
        taken="str | Path",
    )
    devices: int | None = option(None, _OF_POOLS, least=1)
    network: str | Path | Network = option("default", _OF_POOLS, offers=Packaged.NETWORKS)
    recipe: str | None = option(None, _NOT_OF_POOLS, offers=_RECIPES)
    calibration: Path | None = option(None, _NOT_OF_POOLS, metavar="FILE", taken="str | Path | None")
    objective: str = option(
        "throughput",
        "What is best: throughput, cost_per_sample, or energy_per_sample (at TDP).",
        offers=_FLEET_OBJECTIVES,
    )


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions(
    KeptOptions, ConvergenceOptions, FailureOptions, PlanChoices, TaskOptions, OneArchOptions
):
    """Of `dse whatif`."""

    vary: str = option(
        ...,
        "What to vary and its values: devices=64,256,1024, zero=0,1,3, arch=a100,h100, or a hardware "
        "field (dse explain): hbm_stacks=4,5,6.",
        metavar="NAME=V1,V2,...",
        taken="str | Mapping[str, object]",
        meaning='An option or a hardware field, and its values: `"devices=64,256"` or `{"devices": [64, 256]}`.',
    )
    plot: Path | None = option(
        None, "Draw where the time goes into this file, .svg or .html.", effect=Effect.NOTHING
    )


@dataclass(frozen=True, kw_only=True)
class WhatIfFailuresOptions(KeptOptions, FailureOptions, PlanChoices, TaskOptions, OneArchOptions):
    """Of `dse whatif failures` and `phaze.whatif_failures`."""

    failures: str | Path = option(
        "llama3-2024",
        "How devices fail and restart: built-in record or YAML file.",
        offers=Packaged.FAILURES,
        metavar="NAME|FILE",
    )
    domain: str = option(
        "8,32,72",
        "Sizes of scale-up domains, which switches join.",
        metavar="N1,N2,...",
        taken="str | Sequence[int]",
    )


@dataclass(frozen=True, kw_only=True)
class WhatIfBubblesOptions(KeptOptions, PlanChoices, TaskOptions, OneArchOptions):
    """Of `dse whatif bubbles` and `phaze.whatif_bubbles`."""

    fill: str | None = option(
        None,
        "Work for the bubbles: forward passes of these workloads, in the batches that do most (default: none).",
        metavar="MODEL,...",
        offers=Packaged.WORKLOADS,
        several=True,
        taken="str | Sequence[str] | None",
    )
    switch: Quantity | None = option(
        None, "Time that each bubble loses to switching, for instance 1ms (default: none)."
    )


@dataclass(frozen=True, kw_only=True)
class WhatIfColocateOptions(KeptOptions, PlanChoices, TaskOptions, OneArchOptions):
    """Of `dse whatif colocate` and `phaze.whatif_colocate`."""

    devices: int | None = option(1, "Accelerators; jobs share one.", least=1, taken="int")
    beside: str = option(
        ...,
        "Jobs beside the training, one at a time: passes of these workloads.",
        metavar="MODEL,...",
        offers=Packaged.WORKLOADS,
        several=True,
        taken="str | Sequence[str]",
    )
    beside_mode: str = option(
        "prefill",
        "What a pass beside it is: prefill (forward alone), decode (one token more of every sequence) or training.",
        offers=("prefill", "decode", "training"),
    )
    beside_batch: int = option(1, "Samples of a pass beside it.", least=1)


@dataclass(frozen=True, kw_only=True)
class PlanServingOptions(KeptOptions, EconomicOptions, OneArchOptions):
    """Of `dse plan serving`."""

    workload: Sequence[str] = option(
        ...,
        _WORKLOAD,
        *("--workload", "-w"),
        metavar="MODEL",
        offers=Packaged.WORKLOADS,
        taken="str | Path | Sequence[str]",
    )
    devices: int = option(SERVING_DEVICES, "Accelerators the workload is spread over.", least=1)
    prompt: int = option(2048, "Tokens of a prompt.", least=1)
    output_tokens: int = option(256, "Tokens of an answer.", least=2)
    max_ttft: Quantity | None = option(
        None, "Target for the mean time to first token, for instance 1s.", "--max-ttft", "--ttft"
    )
    max_tpot: Quantity | None = option(
        None,
        "Target for the mean time per output token after it, for instance 50ms.",
        *("--max-tpot", "--tpot"),
    )
    rate: float | None = option(None, "Requests per second (default: as many as can be served).")
    concurrency: int | None = option(
        None, "Clients that each ask again as soon as they are answered, instead of --rate.", least=1
    )
    trace: Path | None = option(
        None,
        "Recorded requests: a CSV file with input_tokens and output_tokens, arrival_s and prefix_hashes if known.",
        metavar="FILE",
        taken="str | Path | None",
    )
    prefix_block: int = option(512, "Prompt tokens that one of a trace's prefix_hashes stands for.", least=1)
    prefix_hits: float | None = option(
        None,
        "Share of every prompt that the prefix cache holds, so that it is not computed, for instance 0.6.",
    )
    host_hits: float | None = option(
        None, "Share of every prompt that is read from the host's memory instead, for instance 0.2."
    )
    prefix_cache: Quantity | None = option(
        None,
        "Memory of each device kept for beginnings of prompts, for instance 10GiB; hits follow from a trace's hashes.",
    )
    host_cache: Quantity | None = option(
        None,
        "Memory of the host for each device, where beginnings go that the devices have no room for: 200GB.",
    )
    draft: str | None = option(
        None,
        "Speculative decoding: the model that guesses tokens, or ngram, which looks them up in the text.",
        offers=("ngram",),
        metavar="MODEL",
    )
    draft_tokens: int = option(4, "Tokens that are guessed before each pass.", least=1)
    acceptance: float | None = option(None, "Chance that a guess is accepted if those before it were.")
    acceptance_length: float | None = option(
        None, "Tokens that a pass makes on average, its own among them, instead of --acceptance."
    )
    context_parallel: int | None = option(None, _PARTS, least=1)
    expert_skew: float | None = option(None, _SKEW)
    redundant_experts: int | None = option(None, _REDUNDANT, least=0)
    disaggregate: bool | None = option(
        None,
        "Separate pools of devices for prefill and decode, or not (default: the better).",
        "--disaggregate/--no-disaggregate",
    )
    chunk: int | None = option(None, "Prompt tokens a pass takes beside decode (default: the best).", least=1)
    kv_cache: str = option(
        "paged", "Layout of the key-value cache: contiguous or paged.", offers=("contiguous", "paged")
    )
    kv_cache_format: str | None = option(None, _CACHE_FORMAT, offers=_CACHE_FORMATS)
    recipe: str | None = option(
        None,
        "Linear layers in few bits, as of `dse evaluate` (default: the model's own precision).",
        offers=_RECIPES,
    )
    dispatch: Quantity | None = option(None, "Host time per kernel, for instance 5us (default: none).")
    engine: str | Path | None = option(
        None,
        "Inference engine whose time per pass, pass size and policies count: built-in name or YAML file.",
        offers=Packaged.ENGINES,
        metavar="NAME|FILE",
    )
    network: str = option("default", "Built-in network or YAML file.", offers=Packaged.NETWORKS)
    rung: str = option(
        "analytic",
        "Rung of the cost model: analytic, calibrated on the chip's measured family, or ideal (hardware alone).",
        offers=("analytic", "calibrated", "ideal"),
    )
    simulate: int | None = option(
        None, "Also simulate this many requests, at --rate or --concurrency, for percentiles.", least=1
    )
    seed: int = option(0, "Seed of everything random.", least=0)


MODELS: Mapping[str, type[Options]] = {
    "run": RunOptions,
    "sweep": SweepOptions,
    "evaluate": EvaluateOptions,
    "compare": CompareOptions,
    "plan": PlanOptions,
    "plan pools": PlanPoolsOptions,
    "plan serving": PlanServingOptions,
    "whatif": WhatIfOptions,
    "whatif bubbles": WhatIfBubblesOptions,
    "whatif failures": WhatIfFailuresOptions,
}
"""By verb."""
