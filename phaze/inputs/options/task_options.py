"""Options of what is to be done: a workload in a pass, on a cluster, under software."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.inputs.options.offered_values import (
    CACHE_FORMAT,
    CACHE_FORMATS,
    DEVICES,
    RECIPES,
    WORKLOAD,
    WORKLOAD_AT_HAND,
)
from phaze.inputs.options.option_model import Options, Packaged, option

if TYPE_CHECKING:
    from phaze.hardware.cluster_network import Network
    from phaze.inputs.workload_sources import Source
    from phaze.parallel.framework import Framework
    from phaze.parallel.plan_choices import Plans
    from phaze.quantity import Quantity


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Options):
    """A workload on a cluster, under software that runs plans of a space."""

    workload: Sequence[Source] = option(
        ...,
        WORKLOAD,
        *("--workload", "-w"),
        metavar="MODEL",
        offers=Packaged.WORKLOADS,
        taken="Source",
        meaning=WORKLOAD_AT_HAND,
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
        "in inference int8; weights alone, on any arrays: fp8-, int8-, int4-, mxfp4- or nvfp4-weights; of experts "
        "alone, in inference: mxfp4-, mxfp4-mxfp8- or nvfp4-experts; or none "
        "(default: fp8 on precision bf16+fp8).",
        offers=RECIPES,
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
    kv_cache_format: str | None = option(None, CACHE_FORMAT, offers=CACHE_FORMATS)


@dataclass(frozen=True, kw_only=True)
class PassTaskOptions(PassOptions, BindOptions, TaskOptions):
    """Such a task in any pass of a model."""


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
