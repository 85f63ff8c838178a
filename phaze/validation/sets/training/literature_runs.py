"""Training runs that papers report in passing: those with dimensions, devices, a batch and a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isnan
from types import MappingProxyType

from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived_figures import peak_flops_per_s
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns, StatedRun
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.workload import Workload

NO_DIMENSIONS = "no dimensions, sequence length, devices or batch"
NO_TIME = "no time of an iteration, and nothing it follows from"
NO_SOFTWARE = "software that no framework file describes"
NO_PLAN = "degrees that devices and batch do not allow"
OTHER_MODEL = "a model changed in ways that are not stated"

_MICROBATCHES = 1, 2, 4, 8, 16, 32
_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "layers": "layers",
        "hidden": "hidden",
        "heads": "heads",
        "vocabulary": "vocab",
        "tokens": "seq_len",
        "devices": "n_accelerators",
        "batch": "global_batch_seqs",
    }
)


@dataclass(frozen=True, slots=True)
class _Software:
    """Settings of a framework's runs that rows do not give; `plans`: whose plans they have, if another's."""

    framework: str
    network: str = "hgx-a100"
    recompute: Recompute = Recompute.FULL
    zero: Zero = Zero.OPTIMIZER
    sequence: bool = False
    tied: bool = True
    plans: str | None = None

    def loaded(self) -> Framework:
        """The framework, with the plans that the runs were chosen from."""
        found = load_framework(self.framework)
        return found.model_copy(update={"plans": load_framework(self.plans).plans}) if self.plans else found


# By words of the columns framework and parallelism. MegaScale (arXiv 2402.15627) has Megatron-LM with sequence
# parallelism and a distributed optimizer; SageMaker's instances have four 100 Gb/s adapters for eight devices.
_SOFTWARE: Mapping[str, _Software] = MappingProxyType(
    {
        "DeepSpeed": _Software("megatron-lm-2021", plans="megatron-deepspeed-2022"),
        "Megatron": _Software("megatron-lm-2022", recompute=Recompute.SELECTIVE, sequence=True),
        "NeoX": _Software("gpt-neox-2023", tied=False),
        "SageMaker": _Software("deepspeed-zero3-2021", "p4d-a100", zero=Zero.WEIGHTS),
    }
)


def iterations(columns: Columns) -> Judged:
    """Seconds per iteration: stated, or by sequences or tokens per second, utilisation or FLOP/s."""
    runs = PublishedRuns()
    for row in range(columns.rows):
        run = _run(columns, row)
        if isinstance(run, str):
            runs.drop(run)
        else:
            runs.keep(run)
    return runs.judge()


def _run(columns: Columns, row: int) -> PublishedRun | str:
    """The run of a row, or why it is left out."""
    chip, software = _chip(columns, row), _software(columns, row)
    if (why := _refusal(columns, row)) is not None:
        return why
    if chip is None or software is None:
        return NO_TEMPLATE if chip is None else NO_SOFTWARE
    stated, framework = _stated(columns, row), software.loaded()
    workload = stated.workload(framework, tied=software.tied)
    measured = _iteration_s(columns, row, workload, chip, stated)
    if measured is None:
        return NO_TIME
    first, *others = _plans(columns, row, stated, software)
    cluster = stated.cluster(software.network)
    return PublishedRun(chip, workload, cluster, framework, first, measured, others=tuple(others))


def _refusal(columns: Columns, row: int) -> str | None:
    """Reason to leave out a row whatever it was run with; None where there is none."""
    if any(isnan(columns.numbers(column)[row]) for column in _COLUMNS.values()):
        return NO_DIMENSIONS
    if columns["framework"][row] == "MegaScale":
        return OTHER_MODEL
    stated = _stated(columns, row)
    return NO_PLAN if stated.devices < stated.tensor * stated.stages or stated.share < 1 else None


def _chip(columns: Columns, row: int) -> Architecture | None:
    return chip_of(columns["accelerator"][row].replace("A100-class", "A100-SXM 80GB"))


def _software(columns: Columns, row: int) -> _Software | None:
    text = f"{columns['framework'][row]} {columns['parallelism'][row]}"
    return next((software for word, software in _SOFTWARE.items() if word in text), None)


def _stated(columns: Columns, row: int) -> StatedRun:
    text = columns["parallelism"][row]
    numbers = {field: int(columns.numbers(name)[row]) for field, name in _COLUMNS.items()}
    return StatedRun(tensor=_degree("TP", text), stages=_degree("PP", text), **numbers)


def _plans(columns: Columns, row: int, stated: StatedRun, software: _Software) -> list[ParallelPlan]:
    """Interleaving as far as it is stated; microbatch and the rest are left open."""
    text = columns["parallelism"][row]
    said = re.search(r"interleaved (\d+)", text)
    choices = [(b, v) for b, v in stated.choices(_MICROBATCHES) if not said or v == int(said.group(1))]
    if "DeepSpeed" in columns["framework"][row]:  # its pipelines are not interleaved
        choices = [(b, v) for b, v in choices if v == 1]
    plans = [stated.strategy(*choice, sequence=software.sequence) for choice in choices]
    return [replace(plan, recompute=software.recompute, zero=software.zero) for plan in plans]


def _degree(name: str, text: str) -> int:
    found = re.search(rf"{name}(\d+)", text)
    return int(found.group(1)) if found else 1


def _iteration_s(
    columns: Columns, row: int, workload: Workload, chip: Architecture, stated: StatedRun
) -> float | None:
    """Seconds of an iteration by the first of the columns that has something.

    FLOP/s count a forward pass that is run again, as Megatron-LM's formula does; utilisation does not.
    """
    names = "step_s", "throughput_seqs_per_s", "tokens_per_s", "mfu_pct", "tflops_per_acc"
    step, sequences, tokens, utilisation, rate = (float(columns.numbers(name)[row]) for name in names)
    flops = workload.chain(1, 1).model_flops * stated.batch / stated.devices
    peak = float(peak_flops_per_s(to_table([chip]))[0])
    found = (
        step,
        stated.batch / sequences,
        stated.batch * stated.tokens / tokens,
        flops / (utilisation / 100 * peak),
        4 / 3 * flops / (rate * 1e12),
    )
    return next((seconds for seconds in found if not isnan(seconds)), None)
