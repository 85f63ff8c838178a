"""Iterations and single layers of Megatron-LM with and without recompute (Korthikanti et al., arXiv 2205.05198)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from phaze.cost.rung import Rung
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived import peak_flops_per_s
from phaze.placement.cluster import Recompute
from phaze.placement.strategy.framework import load_framework
from phaze.placement.strategy.load import Loads
from phaze.placement.strategy.strategy import Strategy
from phaze.validation.cases import Judged
from phaze.validation.columns import Columns
from phaze.validation.stated import Stated, whole
from phaze.validation.training import Run, Runs, estimator

_ITERATION, _FORWARD, _BACKWARD = "iteration", "layer forward", "layer backward"
_BLOCKS = 3, 2  # the time of a layer is what the third adds to a model of two


def iterations(columns: Columns) -> Judged:
    """Seconds per iteration (table 5, and the larger run of section 6.3)."""
    runs = Runs()
    for row, metric in enumerate(columns["metric"]):
        if metric.startswith(_ITERATION):
            runs.keep(_run(columns, row))
        else:
            runs.drop("time of one layer, another metric")
    return runs.judge()


def forward(columns: Columns) -> Judged:
    """Seconds of a layer's forward pass (table 4)."""
    return _one_layer(columns, _FORWARD)


def backward(columns: Columns) -> Judged:
    """Seconds of a layer's backward pass, recompute included (table 4)."""
    return _one_layer(columns, _BACKWARD)


def _run(columns: Columns, row: int, unit_s: float = 1.0) -> Run:
    """The run of one row; all were measured on Selene."""
    stated, framework = Stated.of(columns, row), load_framework("megatron-lm-2022")
    return Run(
        load_architecture("a100-80gb"),
        stated.workload(framework),
        stated.cluster("hgx-a100"),
        framework,
        _strategy(stated, columns, row),
        float(columns.numbers("value")[row]) * unit_s,
    )


def _strategy(stated: Stated, columns: Columns, row: int) -> Strategy:
    chunks = whole(columns.numbers("interleave_stages")[row], 1)
    config, microbatch = columns["config"][row], int(columns.numbers("micro_batch")[row])
    divides = "sequence parallel" in config and "no sequence" not in config
    return replace(stated.strategy(microbatch, chunks, sequence=divides), recompute=_recompute(config))


def _recompute(config: str) -> Recompute:
    if "full" in config:
        return Recompute.FULL
    return Recompute.SELECTIVE if "selective" in config else Recompute.NONE


def _one_layer(columns: Columns, what: str) -> Judged:
    rows = [row for row, metric in enumerate(columns["metric"]) if metric.startswith(what)]
    found: dict[Rung, list[float]] = {rung: [] for rung in Rung}
    for row in rows:
        run, stated = _run(columns, row), Stated.of(columns, row)
        for rung in (Rung.ANALYTIC, Rung.CALIBRATED):
            more, less = (_loads(run, stated, blocks, rung) for blocks in _BLOCKS)
            found[rung].append(_pass_s(more, what) - _pass_s(less, what))
        found[Rung.ROOFLINE].append(_roofline_s(run, stated, what))
    measured = columns.numbers("value")[rows] / 1e3
    others = {"another metric": columns.rows - len(rows)} if columns.rows > len(rows) else {}
    return Judged(measured, {rung: np.array(seconds) for rung, seconds in found.items()}, others)


def _loads(run: Run, stated: Stated, blocks: int, rung: Rung) -> Loads:
    shorter = replace(run, workload=stated.workload(run.framework, layers=blocks))
    return estimator(shorter, rung).loads(run.strategy)


def _pass_s(loads: Loads, what: str) -> float:
    return float((loads.forward.pass_s if what == _FORWARD else loads.turned_s)[0])


def _roofline_s(run: Run, stated: Stated, what: str) -> float:
    """Model FLOPs at the peak of all devices: a third of them forward, the others backward."""
    more, less = (stated.workload(run.framework, layers=blocks) for blocks in _BLOCKS)
    flops = (
        more.chain(run.strategy.microbatch, 1).model_flops
        - less.chain(run.strategy.microbatch, 1).model_flops
    )
    peak = float(peak_flops_per_s(to_table([run.chip]))[0]) * run.cluster.devices
    return flops / peak / 3 * (1 if what == _FORWARD else 2)
