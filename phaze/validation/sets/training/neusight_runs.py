"""Whole models in fp32 on one device, as an eager framework or a compiler of graphs runs them, and training passes
over a few devices of one node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.cost.fidelity import JUDGED, Fidelity
from phaze.cost.kernels.kernel_laws import kernels_s
from phaze.cost.roofline_model import roofline_s
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of, system_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.fusion_rules import ALL_FUSION, EAGER_FUSION
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import LayerChain, Pass, Work
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_loader import LoadOptions, workload_of

Works = Mapping[Work, int]
"""Kernels of a pass over a model, and how often each of them runs."""

UNKNOWN_FORM = "a model whose form the row does not say"
_COMPILED = "fusion"  # what the set calls torch.compile

# Family of a workload file and what it says beside sizes, by the start of a model's name.
_FORMS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "gpt": ("decoder", {"activation": "gelu_new"}),
        "opt": ("decoder", {"activation": "relu"}),
        "bert": ("encoder", {"activation": "gelu", "norm_place": "post", "token_types": 2}),
        # T5-3B's sizes: its encoder and decoder, heads of 128. A token passes one expert, as large as its feed-forward.
        "switch": (
            "encoder-decoder",
            {"activation": "relu", "norm": "rms", "bias": False, "positions": "relative", "head_size": 128},
        ),
    }
)
SIZES: Mapping[str, str] = MappingProxyType(
    {"layers": "layers", "hidden": "hidden", "heads": "heads", "ffn": "ffn_hidden", "vocab": "vocabulary"}
)
"""Columns of a row, and what a workload file calls them."""


def neusight_single_device(columns: Columns) -> Judged:
    """One forward pass, or forward and backward without an optimizer step, over whole sequences."""
    numbers = {name: columns.numbers(name) for name in (*SIZES, "seq_len", "batch_size", "latency_ms")}
    measured: list[float] = []
    predicted: dict[Fidelity, list[float]] = {rung: [] for rung in JUDGED}
    excluded: Counter[str] = Counter()
    words = (columns[name] for name in ("device", "model", "mode", "option"))
    for row, (device, model, mode, option) in enumerate(zip(*words, strict=True)):
        chip, size = chip_of(device), {name: int(column[row]) for name, column in numbers.items()}
        training = mode.startswith("train")
        workload = workload_for(model, size, training=training, compiled=option == _COMPILED)
        if chip is None or workload is None:
            excluded[NO_TEMPLATE if chip is None else UNKNOWN_FORM] += 1
            continue
        works = works_of(
            workload.chain(size["batch_size"], 1), headless=not training and model.startswith("bert")
        )
        measured.append(float(numbers["latency_ms"][row]) * 1e-3)
        for rung, seconds in seconds_of(works, chip).items():
            predicted[rung].append(seconds)
    found = {rung: np.array(seconds) for rung, seconds in predicted.items()}
    return Judged(np.array(measured), found, dict(excluded))


def workload_for(
    model: str, size: Mapping[str, int], *, training: bool, compiled: bool = False
) -> Workload | None:
    """A model of a row's sizes, by the names of its columns; None for one whose form is not known."""
    form = next((start for start in _FORMS if model.startswith(start)), None)
    if form is None:
        return None
    sizes = tuple((field, size[column]) for column, field in SIZES.items())
    return _workload(form, sizes, size["seq_len"], training=training, compiled=compiled)


@lru_cache(maxsize=64)
def _workload(
    form: str, sizes: tuple[tuple[str, int], ...], tokens: int, *, training: bool, compiled: bool
) -> Workload:
    family, said = _FORMS[form]
    dropout = {"dropout": 0.1, "attention_dropout": 0.1}
    content = {
        "schema_version": 1,
        "name": form,
        "family": family,
        "source": {"dimensions": "the row"},
        "dimensions": {**dict(sizes), "max_positions": tokens, **dropout, **said},
        "sequence_length": tokens,
        "precision": "fp32",
    }
    mode = Mode.TRAINING if training else Mode.PREFILL
    attention, fusion = (Attention.UNFUSED, ALL_FUSION) if compiled else (Attention.EAGER, EAGER_FUSION)
    return workload_of(content, form, LoadOptions(mode, attention, fusion=fusion))


def works_of(chain: LayerChain, *, headless: bool = False) -> Works:
    """Kernels of all layers, `headless` without those behind the last block."""
    works: Counter[Work] = Counter()
    for unique, repeats in Counter(chain.index).items():
        layer = chain.layers[unique]
        if headless and layer.kind.startswith("head"):
            continue
        for pass_ in (layer.forward, layer.backward):
            for work in () if pass_ is None else pass_.works:
                works[work] += repeats
    return works


def seconds_of(works: Works, chip: Architecture) -> Mapping[Fidelity, float]:
    """Seconds of kernels one after the other, by rung; NaN where no law costs one of them."""
    table, unique = to_table([chip]), tuple(works)
    times: NDArray[np.float64] = np.array([works[work] for work in unique], dtype=np.float64)
    seconds = {rung: kernels_s(unique, table, rung)[0] for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED)}
    seconds[Fidelity.ROOFLINE] = roofline_s(Pass(unique, ()), table, load_network("default"))[0]
    return {rung: float(each @ times) for rung, each in seconds.items()}


_NO_SYSTEM = "no network of this system"
_NO_STRATEGY = "a strategy that the row does not say"


def neusight_several_devices(columns: Columns) -> Judged:
    """Forward and backward over a global batch, without an optimizer step, the whole batch as one microbatch."""
    runs, measured = PublishedRuns(), columns.numbers("latency_ms") * 1e-3
    names = (*SIZES, "seq_len", "batch_size", "n_devices")
    numbers = {name: columns.numbers(name) for name in names}
    words = (columns[name] for name in ("device", "model", "option"))
    for row, (device, model, option) in enumerate(zip(*words, strict=True)):
        size = {name: int(column[row]) for name, column in numbers.items()}
        chip, system, strategy = chip_of(device), system_of(device), strategy_of(option, size["batch_size"])
        workload = workload_for(model, size, training=True)
        if chip is None or workload is None:
            runs.drop(NO_TEMPLATE if chip is None else UNKNOWN_FORM)
        elif system is None or strategy is None:
            runs.drop(_NO_SYSTEM if system is None else _NO_STRATEGY)
        else:
            cluster = Cluster(size["n_devices"], size["batch_size"], system.network)
            runs.keep(
                PublishedRun(
                    chip, workload, cluster, _distributed_framework(), strategy, float(measured[row])
                )
            )
    return runs.judge()


def strategy_of(option: str, batch: int) -> ParallelPlan | None:
    """Of `dp4`, `tp4`, `pp4_1` (in one microbatch); None for anything else, and for samples that cannot be shared."""
    found = re.fullmatch(r"(dp|tp|pp)(\d+)(?:_(\d+))?", option)
    if found is None:
        return None
    kind, degree, microbatches = found[1], int(found[2]), int(found[3] or 1)
    shares = {"dp": degree, "tp": 1, "pp": microbatches}[kind]
    if batch % shares:
        return None
    if kind == "dp":
        return ParallelPlan(batch // shares, data_parallel=degree)
    if kind == "tp":
        return ParallelPlan(batch, sharding=Sharding(degree))
    return ParallelPlan(batch // shares, pipeline_parallel=degree)


def _distributed_framework() -> Framework:
    """The eager one; no optimizer was timed."""
    return load_framework("eager").model_copy(update={"optimizer_stretch": 0.0})
