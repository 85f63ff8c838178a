"""Options of `dse plan serving`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.inputs.options.answer_options import KeptOptions
from phaze.inputs.options.arch_options import OneArchOptions
from phaze.inputs.options.offered_values import (
    CACHE_FORMAT,
    CACHE_FORMATS,
    NGRAM,
    RECIPES,
    REDUNDANT,
    SERVING_DEVICES,
    SKEW,
    WORKLOAD,
)
from phaze.inputs.options.option_model import Packaged, option
from phaze.inputs.options.task_options import EconomicOptions

if TYPE_CHECKING:
    from phaze.quantity import Quantity


_PARTS = (
    "Devices of a tensor group that hold the cache of a part of the tokens each, where it would repeat key-value heads "
    "(default: of contexts from 8,192 tokens on the better of none and all)."
)


@dataclass(frozen=True, kw_only=True)
class PlanServingOptions(KeptOptions, EconomicOptions, OneArchOptions):
    """Of `dse plan serving`."""

    workload: Sequence[str] = option(
        ...,
        WORKLOAD,
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
        offers=(NGRAM,),
        metavar="MODEL",
    )
    draft_tokens: int = option(4, "Tokens that are guessed before each pass.", least=1)
    acceptance: float | None = option(None, "Chance that a guess is accepted if those before it were.")
    acceptance_length: float | None = option(
        None, "Tokens that a pass makes on average, its own among them, instead of --acceptance."
    )
    context_parallel: int | None = option(None, _PARTS, least=1)
    expert_skew: float | None = option(None, SKEW)
    redundant_experts: int | None = option(None, REDUNDANT, least=0)
    disaggregate: bool | None = option(
        None,
        "Separate pools of devices for prefill and decode, or not (default: the better).",
        "--disaggregate/--no-disaggregate",
    )
    decode_arch: str | Path | None = option(
        None,
        "Chip of a decode pool beside a prefill pool of --arch (default: the same one).",
        metavar="ARCH",
        offers=Packaged.ARCHS,
    )
    prefill_power: Quantity | None = option(
        None, "Cap on what each device of the prefill pool draws, for instance 500W; its clock falls as far."
    )
    decode_power: Quantity | None = option(
        None, "Cap on what each device of the decode pool draws, for instance 350W; its clock falls as far."
    )
    chunk: int | None = option(None, "Prompt tokens a pass takes beside decode (default: the best).", least=1)
    kv_cache: str = option(
        "paged", "Layout of the key-value cache: contiguous or paged.", offers=("contiguous", "paged")
    )
    kv_cache_format: str | None = option(None, CACHE_FORMAT, offers=CACHE_FORMATS)
    recipe: str | None = option(
        None,
        "Linear layers in few bits, as of `dse evaluate` (default: the model's own precision).",
        offers=RECIPES,
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
