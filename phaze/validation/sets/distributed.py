"""Training passes over a few devices of one node: data, tensor or pipeline parallelism alone."""

from __future__ import annotations

import re

from phaze.placement.cluster import Cluster
from phaze.placement.strategy.framework import Framework, load_framework
from phaze.placement.strategy.strategy import Strategy
from phaze.validation.cases import Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.sets.models import SIZES, UNKNOWN_FORM, workload_for
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.validation.systems import system_of
from phaze.validation.training import Run, Runs
from phaze.workload.sharding.parallel_degrees import Sharding

_NO_SYSTEM = "no network of this system"
_NO_STRATEGY = "a strategy that the row does not say"


def neusight(columns: Columns) -> Judged:
    """Forward and backward over a global batch, without an optimizer step, the whole batch as one microbatch."""
    runs, measured = Runs(), columns.numbers("latency_ms") * 1e-3
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
            runs.keep(Run(chip, workload, cluster, _framework(), strategy, float(measured[row])))
    return runs.judge()


def strategy_of(option: str, batch: int) -> Strategy | None:
    """Of `dp4`, `tp4`, `pp4_1` (in one microbatch); None for anything else, and for samples that cannot be shared."""
    found = re.fullmatch(r"(dp|tp|pp)(\d+)(?:_(\d+))?", option)
    if found is None:
        return None
    kind, degree, microbatches = found[1], int(found[2]), int(found[3] or 1)
    shares = {"dp": degree, "tp": 1, "pp": microbatches}[kind]
    if batch % shares:
        return None
    if kind == "dp":
        return Strategy(batch // shares, data_parallel=degree)
    if kind == "tp":
        return Strategy(batch, sharding=Sharding(degree))
    return Strategy(batch // shares, pipeline_parallel=degree)


def _framework() -> Framework:
    """The eager one; no optimizer was timed."""
    return load_framework("eager").model_copy(update={"optimizer_stretch": 0.0})
