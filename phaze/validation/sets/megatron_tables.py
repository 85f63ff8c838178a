"""Tables of iteration times that Megatron-LM's papers and pages gave from 2020 to 2024."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from phaze.placement.cluster import Recompute
from phaze.placement.strategy.framework import Framework, load_framework
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.validation.cases import Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.validation.stated import Stated, whole
from phaze.validation.training import Run, Runs

_NETWORKS = (("H100", "hgx-h100"), ("V100", "dgx2-v100"), ("A100", "hgx-a100"))
_MICROBATCHES = 1, 2, 4, 8, 16
# Microbatch and parts of the model on each device by hidden size: run_table_1.sh in examples/sc21 of Megatron-LM.
_SCRIPTS: Mapping[int, tuple[int, int]] = MappingProxyType(
    {
        **dict.fromkeys((2304, 3072, 4096), (16, 1)),
        6144: (8, 1),
        8192: (4, 1),
        10240: (2, 3),
        12288: (2, 2),
        16384: (1, 2),
        20480: (1, 3),
        25600: (1, 1),
    }
)


def iterations(columns: Columns) -> Judged:
    """Seconds per iteration, reported or worked out from FLOP/s by the formula of the table."""
    runs = Runs()
    derived, reported = columns.numbers("iteration_s_derived"), columns.numbers("iteration_ms_reported")
    measured = np.where(np.isnan(derived), reported / 1e3, derived)
    for row, gpu in enumerate(columns["gpu"]):
        chip = chip_of(gpu)
        network = next((name for part, name in _NETWORKS if part in gpu), None)
        if chip is None or network is None:
            runs.drop(NO_TEMPLATE)
            continue
        stated = Stated.of(columns, row)
        framework, plans = _plans(columns, row, stated)
        core = "Core" in columns["table"][row]  # whose models have a table of logits of their own
        workload = stated.workload(framework, "bf16" if core else "fp16", tied=not core)
        cluster = stated.cluster(network)
        first, *others = plans
        seconds = float(measured[row])
        runs.keep(Run(chip, workload, cluster, framework, first, seconds, others=tuple(others)))
    return runs.judge()


def _plans(columns: Columns, row: int, stated: Stated) -> tuple[Framework, list[Strategy]]:
    """The software of a table, and the strategies that a row of it may stand for."""
    table, microbatch = columns["table"][row], whole(columns.numbers("micro_batch")[row], 0)
    if "ZeRO-3" in columns["scheme"][row]:
        plan = replace(stated.strategy(microbatch), zero=Zero.WEIGHTS, recompute=Recompute.FULL)
        return load_framework("deepspeed-zero3-2021"), [plan]
    if "Core" in table:
        return load_framework("megatron-core-2024"), _core(stated)
    choices = (
        [(stated.share, 1)]
        if "2020" in table
        else stated.choices((microbatch,) if microbatch else _MICROBATCHES)
    )
    if "Table 1" in table and stated.hidden in _SCRIPTS:
        choices = [_SCRIPTS[stated.hidden]]
    plans = [replace(stated.strategy(*choice), recompute=Recompute.FULL) for choice in choices]
    return _eager_reduction(stated), plans


def _eager_reduction(stated: Stated) -> Framework:
    """Runs without pipelines took PyTorch's own data parallelism, which reduces gradients during backward."""
    framework = load_framework("megatron-lm-2021")
    return framework.model_copy(update={"hides_reduction": stated.stages == 1})


def _core(stated: Stated) -> list[Strategy]:
    """Distributed optimizer, sequence parallelism with tensor parallelism; recompute only if memory asks for it."""
    plans = [
        replace(stated.strategy(*choice, sequence=stated.tensor > 1), zero=Zero.OPTIMIZER)
        for choice in stated.choices(_MICROBATCHES)
    ]
    return [*plans, *(replace(plan, recompute=Recompute.FULL) for plan in plans)]
