"""Options of verbs about plans of training: `evaluate`, `compare`, `plan` and `plan pools`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.inputs.options.answer_options import KeptOptions
from phaze.inputs.options.arch_options import OneArchOptions, SeveralArchOptions
from phaze.inputs.options.offered_values import RECIPES
from phaze.inputs.options.option_model import Options, Packaged, option
from phaze.inputs.options.task_options import BindOptions, EconomicOptions, PassTaskOptions, TaskOptions

if TYPE_CHECKING:
    from phaze.hardware.cluster_network import Network


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


@dataclass(frozen=True, kw_only=True)
class PlanOptions(
    KeptOptions, ConvergenceOptions, FailureOptions, BindOptions, PlanChoices, TaskOptions, OneArchOptions
):
    """Of `dse plan` and `phaze.plan`."""


_OF_POOLS = "Leave it out: every pool of the fleet has its own."

_NOT_OF_POOLS = "Leave it out: pools of unlike chips have none in common."

NOT_ASKED = (_OF_POOLS, _NOT_OF_POOLS)
"""What options say that a verb has by its kind, but does not take."""
_FLEET_OBJECTIVES = ("throughput", "cost_per_sample", "energy_per_sample")


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
    recipe: str | None = option(None, _NOT_OF_POOLS, offers=RECIPES)
    calibration: Path | None = option(None, _NOT_OF_POOLS, metavar="FILE", taken="str | Path | None")
    objective: str = option(
        "throughput",
        "What is best: throughput, cost_per_sample, or energy_per_sample (at TDP).",
        offers=_FLEET_OBJECTIVES,
    )
