"""Mean board power of GPUs that serve a batch of requests to Llama 2 70B, against the energy law at measured times."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.pass_energy import kernel_j, running_w
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import boost_clock_hz
from phaze.validation.measured.measured_cases import Cases, Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import attention, product
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.kernels.power_meter import IDLE_SHARE
from phaze.workload.work import Pass, Work

_MODEL = "llama2-70b"
_LAYERS, _WIDTH, _INNER, _HEADS, _KV_HEADS, _HEAD, _TOKENS = 80, 8192, 28672, 64, 8, 128, 32000
"""Sizes of Llama 2 70B (Touvron et al., arXiv 2307.09288)."""


def watts(columns: Columns) -> Judged:
    """Mean power in W of a GPU over a request, prompt and tokens; rows that read what an idle GPU draws left out.

    P = min(TDP, running power + energy / time) of each phase, all kernels at the peak clock, weighted by its time.
    """
    cases, kept, predicted = Cases(), [], []
    numbers = {name: columns.numbers(name) for name in _NUMBERS}
    fractions = numbers["average_power_fraction"]
    for row, (gpu, model) in enumerate(zip(columns["gpu"], columns["model"], strict=True)):
        chip = chip_of(gpu)
        if np.isnan(fractions[row]):
            cases.drop("power not recorded")
        elif chip is None or chip.published_tdp_w is None:
            cases.drop(NO_TEMPLATE)
        elif model != _MODEL:
            cases.drop("another model than Llama 2 70B")
        elif fractions[row] < IDLE_SHARE:
            cases.drop("no more power than an idle GPU's")
        else:
            kept.append((row, chip.published_tdp_w))
            predicted.append(_request_w(chip, {name: float(of[row]) for name, of in numbers.items()}))
    measured = np.array([fractions[row] * limit for row, limit in kept])
    return Judged(measured, {Fidelity.ANALYTIC: np.array(predicted)}, cases.excluded)


_NUMBERS = (
    *("tp", "prompt_tokens", "batch", "output_tokens", "prompt_ms", "token_ms"),
    "average_power_fraction",
)


def _request_w(chip: Architecture, sizes: dict[str, float]) -> float:
    """Mean power of one GPU over the prompt and all tokens, each phase by its time."""
    table = to_table([chip])
    table = table.replace(clock_hz=boost_clock_hz(table))
    ranks, batch = int(sizes["tp"]), int(sizes["batch"])
    prompt, made = int(sizes["prompt_tokens"]), int(sizes["output_tokens"])
    seconds = np.array([sizes["prompt_ms"] * 1e-3, sizes["token_ms"] * 1e-3])
    joules = np.array(
        [
            _pass_j(table, _layer(batch, prompt, prompt, ranks), _head(batch, ranks)),
            _pass_j(table, _layer(batch, 1, prompt + made // 2, ranks), _head(batch, ranks)),
        ]
    )
    power = np.minimum(running_w(table)[0] + joules / seconds, float(chip.published_tdp_w or 0.0))
    weights: Floats = seconds * np.array([1.0, made])
    return float(np.average(power, weights=weights))


def _pass_j(table: ArchitectureTable, layer: tuple[Work, ...], head: Work) -> float:
    """Dynamic energy of one pass through all layers on one GPU."""
    works = (*layer, head)
    costs = CostModel(table, load_network("default")).costs(Pass(works, ()))
    times = np.array([_LAYERS] * len(layer) + [1])
    return float((times * kernel_j(costs, table)).sum())


def _layer(batch: int, queries: int, keys: int, ranks: int) -> tuple[Work, ...]:
    """Products and attention of one layer on one of `ranks` GPUs that share it."""
    rows, heads, kv_heads = batch * queries, _HEADS // ranks, max(1, _KV_HEADS // ranks)
    return (
        product(1, rows, _WIDTH, (heads + 2 * kv_heads) * _HEAD),
        attention(batch, queries, keys, heads, kv_heads, _HEAD, causal=True),
        product(1, rows, heads * _HEAD, _WIDTH),
        product(1, rows, _WIDTH, 2 * _INNER // ranks),
        product(1, rows, _INNER // ranks, _WIDTH),
    )


def _head(batch: int, ranks: int) -> Work:
    return product(1, batch, _WIDTH, _TOKENS // ranks)
