"""Training steps and decoding of one GPU as `dse measure gpu` measures them: seconds, memory and joules.

The framework is a plain loop of PyTorch with the row's bytes per parameter. Nothing is fitted to tables of this kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType

import numpy as np

from phaze.cost.fidelity import Fidelity
from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.own_serving import fit_serving, served_rows
from phaze.validation.measured.published_models import decoder
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns, RunGroup, estimator
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.kernels.gpu_kernels import NO_WATTS
from phaze.workload.workload import Workload

NO_FORM = "a model whose form the row does not say"
NO_MEMORY = "memory not told"
_SAID = (Fidelity.ANALYTIC, Fidelity.CALIBRATED)
_FRAMEWORKS = ("pytorch-2026-eager", "pytorch-2026")  # by whether blocks are compiled; the loss is not

_MIXED_STEP_BYTES = 30.0
"""HBM bytes of an optimizer step that the model counts per parameter (`training_numerics`)."""
_PARAMETERS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "bf16": {
            **{"weight_bytes": 2, "gradient_bytes": 2, "optimizer_bytes": 4},
            "optimizer_stretch": 14
            / _MIXED_STEP_BYTES,  # weight, gradient, two moments read; all but the gradient written
        },
        "autocast": {
            **{"weight_bytes": 4, "gradient_bytes": 4, "optimizer_bytes": 8},
            "optimizer_stretch": 28 / _MIXED_STEP_BYTES,
        },
    }
)
"""Bytes per parameter of AdamW on weights in bf16, and on weights in fp32 whose products autocast turns to bf16."""
_FORMS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "gpt": {"activation": "gelu_tanh", "norm": "layer", "bias": True, "positions": "learned"},
        "llama": {
            **{"activation": "silu", "gated": True, "norm": "rms", "bias": False, "positions": "rope"},
            "joint_products": False,
        },
    }
)
"""What the script's models are beside their sizes, by the start of their names."""


def times(columns: Columns) -> Judged:
    """Seconds of a step."""
    runs, _ = _runs(columns, "step_s")
    return runs.judge()


def memory(columns: Columns) -> Judged:
    """Most bytes that tensors take at once; what the allocator holds beside them is another column."""
    runs, _ = _runs(columns, "peak_bytes", NO_MEMORY)
    judged = runs.judge()
    return replace(judged, predicted={rung: judged.predicted[rung] for rung in _SAID})


def energy(columns: Columns) -> Judged:
    """Joules of the board per step, the model's time and power together."""
    runs, kept = _runs(columns, "energy_j", NO_WATTS)
    found: dict[Fidelity, list[float]] = {rung: [] for rung in _SAID}
    known: dict[Fidelity, dict[RunGroup, object]] = {rung: {} for rung in _SAID}
    for run in kept:
        for rung in _SAID:
            costs = estimator(run, rung, known[rung])  # type: ignore[arg-type]
            found[rung].append(costs.energy_j(run.strategy, costs.iteration(run.strategy)))
    predicted = {rung: np.array(joules) for rung, joules in found.items()}
    return Judged(np.array([run.measured for run in kept]), predicted, runs.excluded)


def _runs(columns: Columns, measured: str, missing: str = "") -> tuple[PublishedRuns, list[PublishedRun]]:
    """The runs of the rows, with what was measured of them; `missing`: why rows without that are left out."""
    runs, kept = PublishedRuns(), []
    figures = columns.numbers(measured)
    figure = attrgetter("memory_bytes" if measured == "peak_bytes" else "iteration_s")
    for row, device in enumerate(columns["device"]):
        chip, form = chip_of(device), next((f for f in _FORMS if columns["model"][row].startswith(f)), None)
        precision = columns["precision"][row]
        if chip is None or form is None or precision not in _PARAMETERS:
            runs.drop(NO_TEMPLATE if chip is None else NO_FORM)
        elif not figures[row] > 0:
            runs.drop(missing)
        else:
            framework = _framework(precision, bool(columns.numbers("compiled")[row]))
            batch = int(columns.numbers("batch_size")[row])
            cluster = Cluster(1, batch, load_network("default"))
            workload = _workload(form, _sizes(columns, row), int(columns.numbers("seq_len")[row]), framework)
            run = PublishedRun(
                chip,
                workload,
                cluster,
                framework,
                ParallelPlan(microbatch=batch),
                float(figures[row]),
                figure,
            )
            runs.keep(run)
            kept.append(run)
    return runs, kept


_SIZES: Mapping[str, str] = MappingProxyType(
    {
        **{"layers": "layers", "hidden": "hidden", "heads": "heads", "kv_heads": "kv_heads"},
        **{"ffn": "ffn_hidden", "vocab": "vocabulary"},
    }
)


def _sizes(columns: Columns, row: int) -> tuple[tuple[str, int], ...]:
    return tuple((field, int(columns.numbers(name)[row])) for name, field in _SIZES.items())


def _framework(precision: str, compiled: bool) -> Framework:
    return load_framework(_FRAMEWORKS[compiled]).model_copy(update=dict(_PARAMETERS[precision]))


@lru_cache(maxsize=64)
def _workload(form: str, sizes: tuple[tuple[str, int], ...], tokens: int, framework: Framework) -> Workload:
    none = {"dropout": 0.0, "attention_dropout": 0.0}
    fixed = {"norm_place": "pre", "tied_embeddings": True, "max_positions": tokens, **none}
    return decoder({**dict(sizes), **fixed, **_FORMS[form]}, tokens, framework.attention, framework.fusion)


def token_times(columns: Columns) -> Judged:
    """Seconds per output token of a model that decodes from a CUDA graph; no engine's time on the host."""
    chips = [chip_of(device) for device in columns["device"]]
    kept = [row for row, chip in enumerate(chips) if chip is not None]
    rows = served_rows(columns)
    predicted = {rung: np.full(columns.rows, np.nan) for rung in _SAID}
    for chip in {chip.name: chip for chip in chips if chip is not None}.values():
        where = [row for row in kept if chips[row] == chip]
        for rung in _SAID:
            found = fit_serving([rows[row] for row in where], chip, load_network("default"), rung)
            predicted[rung][where] = found.predicted_s[:, 0]
    excluded = {NO_TEMPLATE: columns.rows - len(kept)} if columns.rows > len(kept) else {}
    measured = np.array([row.measured_s for row in rows])[kept]
    return Judged(measured, {rung: said[kept] for rung, said in predicted.items()}, excluded)
