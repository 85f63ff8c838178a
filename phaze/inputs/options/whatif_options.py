"""Options of `dse whatif` and of its questions about failures, bubbles and shared devices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.inputs.options.answer_options import KeptOptions
from phaze.inputs.options.arch_options import OneArchOptions
from phaze.inputs.options.option_model import Effect, Packaged, option
from phaze.inputs.options.plan_options import ConvergenceOptions, FailureOptions, PlanChoices
from phaze.inputs.options.task_options import TaskOptions

if TYPE_CHECKING:
    from phaze.quantity import Quantity


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
