"""Megatron-LM as its papers and pages give it: iterations and layers with and without recompute, memory of layers, and
tables of iteration times from 2020 to 2024."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from phaze.cost.fidelity import JUDGED, Fidelity
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived_figures import peak_flops_per_s
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.training.stage_times import StageTimes
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_runs import (
    PublishedRun,
    PublishedRuns,
    StatedRun,
    count_or,
    estimator,
)
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import LayerChain
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_loader import LoadOptions, workload_of

_ITERATION, _FORWARD, _BACKWARD = "iteration", "layer forward", "layer backward"
_BLOCKS = 3, 2  # the time of a layer is what the third adds to a model of two


def recompute_iterations(columns: Columns) -> Judged:
    """Seconds per iteration (table 5, and the larger run of section 6.3)."""
    runs = PublishedRuns()
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


def _run(columns: Columns, row: int, unit_s: float = 1.0) -> PublishedRun:
    """The run of one row; all were measured on Selene."""
    stated, framework = StatedRun.of(columns, row), load_framework("megatron-lm-2022")
    return PublishedRun(
        load_architecture("a100-80gb"),
        stated.workload(framework),
        stated.cluster("hgx-a100"),
        framework,
        _strategy(stated, columns, row),
        float(columns.numbers("value")[row]) * unit_s,
    )


def _strategy(stated: StatedRun, columns: Columns, row: int) -> ParallelPlan:
    chunks = count_or(columns.numbers("interleave_stages")[row], 1)
    config, microbatch = columns["config"][row], int(columns.numbers("micro_batch")[row])
    divides = "sequence parallel" in config and "no sequence" not in config
    return replace(stated.strategy(microbatch, chunks, sequence=divides), recompute=_recompute(config))


def _recompute(config: str) -> Recompute:
    if "full" in config:
        return Recompute.FULL
    return Recompute.SELECTIVE if "selective" in config else Recompute.NONE


def _one_layer(columns: Columns, what: str) -> Judged:
    rows = [row for row, metric in enumerate(columns["metric"]) if metric.startswith(what)]
    found: dict[Fidelity, list[float]] = {rung: [] for rung in JUDGED}
    for row in rows:
        run, stated = _run(columns, row), StatedRun.of(columns, row)
        for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED):
            more, less = (_loads(run, stated, blocks, rung) for blocks in _BLOCKS)
            found[rung].append(_pass_s(more, what) - _pass_s(less, what))
        found[Fidelity.ROOFLINE].append(_roofline_s(run, stated, what))
    measured = columns.numbers("value")[rows] / 1e3
    others = {"another metric": columns.rows - len(rows)} if columns.rows > len(rows) else {}
    return Judged(measured, {rung: np.array(seconds) for rung, seconds in found.items()}, others)


def _loads(run: PublishedRun, stated: StatedRun, blocks: int, rung: Fidelity) -> StageTimes:
    shorter = replace(run, workload=stated.workload(run.framework, layers=blocks))
    return estimator(shorter, rung).stage_times(run.strategy)


def _pass_s(loads: StageTimes, what: str) -> float:
    return float((loads.forward.pass_s if what == _FORWARD else loads.turned_s)[0])


def _roofline_s(run: PublishedRun, stated: StatedRun, what: str) -> float:
    """Model FLOPs at the peak of all devices: a third of them forward, the others backward."""
    more, less = (stated.workload(run.framework, layers=blocks) for blocks in _BLOCKS)
    flops = (
        more.chain(run.strategy.microbatch, 1).model_flops
        - less.chain(run.strategy.microbatch, 1).model_flops
    )
    peak = float(peak_flops_per_s(to_table([run.chip]))[0]) * run.cluster.devices
    return flops / peak / 3 * (1 if what == _FORWARD else 2)


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


def published_tables(columns: Columns) -> Judged:
    """Seconds per iteration, reported or worked out from FLOP/s by the formula of the table."""
    runs = PublishedRuns()
    derived, reported = columns.numbers("iteration_s_derived"), columns.numbers("iteration_ms_reported")
    measured = np.where(np.isnan(derived), reported / 1e3, derived)
    for row, gpu in enumerate(columns["gpu"]):
        chip = chip_of(gpu)
        network = next((name for part, name in _NETWORKS if part in gpu), None)
        if chip is None or network is None:
            runs.drop(NO_TEMPLATE)
            continue
        stated = StatedRun.of(columns, row)
        framework, plans = _plans(columns, row, stated)
        core = "Core" in columns["table"][row]  # whose models have a table of logits of their own
        workload = stated.workload(framework, "bf16" if core else "fp16", tied=not core)
        cluster = stated.cluster(network)
        first, *others = plans
        seconds = float(measured[row])
        runs.keep(PublishedRun(chip, workload, cluster, framework, first, seconds, others=tuple(others)))
    return runs.judge()


def _plans(columns: Columns, row: int, stated: StatedRun) -> tuple[Framework, list[ParallelPlan]]:
    """The software of a table, and the strategies that a row of it may stand for."""
    table, microbatch = columns["table"][row], count_or(columns.numbers("micro_batch")[row], 0)
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


def _eager_reduction(stated: StatedRun) -> Framework:
    """Runs without pipelines took PyTorch's own data parallelism, which reduces gradients during backward."""
    framework = load_framework("megatron-lm-2021")
    return framework.model_copy(update={"hides_reduction": stated.stages == 1})


def _core(stated: StatedRun) -> list[ParallelPlan]:
    """Distributed optimizer, sequence parallelism with tensor parallelism; recompute only if memory asks for it."""
    plans = [
        replace(stated.strategy(*choice, sequence=stated.tensor > 1), zero=Zero.OPTIMIZER)
        for choice in stated.choices(_MICROBATCHES)
    ]
    return [*plans, *(replace(plan, recompute=Recompute.FULL) for plan in plans)]


_GIB, _TOKENS, _VOCABULARY = 2.0**30, 2048, 51200
# Stages of a device where schedules are interleaved, by model (table 3 of the paper).
_INTERLEAVED: Mapping[str, int] = MappingProxyType({"175B": 3, "530B": 3})
_SIZES = ("heads", "hidden", "layers", "tp", "pp", "micro_batch")


@dataclass(frozen=True, slots=True)
class _Setup:
    """One model on its devices, and what a row says of activations."""

    heads: int
    hidden: int
    layers: int
    tensor: int
    pipeline: int
    microbatch: int
    interleaved: int
    config: str

    @property
    def chain(self) -> LayerChain:
        """Layers of one tensor-parallel rank."""
        sequence = "no seq" not in self.config and (
            "seq parallel" in self.config or "sequence" in self.config
        )
        model = _model(self.layers, self.hidden, self.heads)
        return model.chain(
            self.microbatch, Sharding(self.tensor, sequence=sequence), selective="selective" in self.config
        )

    @property
    def state_bytes(self) -> float:
        """Weights, gradients and optimizer state of one stage."""
        parameters = sum(self.chain.layers[i].parameters for i in _blocks(self.chain))
        model = _model(self.layers, self.hidden, self.heads)
        return parameters * model.numerics.state_bytes / self.pipeline

    @property
    def activation_bytes(self) -> float:
        """Bytes kept by the first stage: of a microbatch per stage, and more where it is interleaved."""
        layers = [self.chain.layers[i] for i in _blocks(self.chain)]
        if "full" in self.config:  # the input of each block, whose first layer is its attention
            kept = sum(layer.input_bytes for layer in layers if layer.kind == "block.attention")
        else:
            kept = sum(layer.saved_bytes for layer in layers)
        more = (self.pipeline - 1) / (self.pipeline * self.interleaved) if self.interleaved else 0.0
        return kept * (1.0 + more)


def layer_memory(columns: Columns) -> Judged:
    """State and activations in bytes, and activations as a share of those with tensor parallelism alone."""
    sizes = [columns.numbers(name) for name in _SIZES]
    measured, predicted = [], []
    excluded: Counter[str] = Counter()
    rows = zip(columns["model"], columns["config"], columns["metric"], columns.numbers("value"), strict=True)
    for row, (model, config, metric, value) in enumerate(rows):
        heads, hidden, layers, tensor, pipeline, batch = (int(column[row]) for column in sizes)
        interleaved = _INTERLEAVED.get(model, 0)
        setup = _Setup(heads, hidden, layers, tensor, pipeline, batch, interleaved, config)
        if metric.startswith("parameters"):
            found, unit = setup.state_bytes, _GIB
        elif metric.startswith("activations"):
            found, unit = setup.activation_bytes, _GIB
        elif "relative" in metric:
            baseline = replace(setup, config="no recompute")
            found, unit = setup.activation_bytes / baseline.activation_bytes, 0.01
        else:
            excluded["another kind of memory"] += 1
            continue
        measured.append(value * unit)
        predicted.append(found)
    return Judged(np.array(measured), {Fidelity.ANALYTIC: np.array(predicted)}, dict(excluded))


def _blocks(chain: LayerChain) -> list[int]:
    """Unique layers of the transformer's blocks, one per position; embedding, last norm and loss left out."""
    return [unique for unique in chain.index if chain.layers[unique].kind.startswith("block")]


@lru_cache(maxsize=32)
def _model(layers: int, hidden: int, heads: int) -> Workload:
    """A GPT of Megatron-LM; attention unfused, dropout everywhere."""
    content = {
        "schema_version": 1,
        "name": "megatron",
        "family": "decoder",
        "source": {"dimensions": "arXiv 2205.05198, table 3"},
        "dimensions": {
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "ffn_hidden": 4 * hidden,
            "vocabulary": _VOCABULARY,
            "max_positions": _TOKENS,
            "activation": "gelu_tanh",
            "norm": "layer",
            "norm_place": "pre",
            "bias": True,
            "positions": "learned",
            "tied_embeddings": True,
            "dropout": 0.1,
            "attention_dropout": 0.1,
        },
        "sequence_length": _TOKENS,
    }
    return workload_of(content, "megatron", LoadOptions(Mode.TRAINING, Attention.UNFUSED, fusion=frozenset()))
