"""Training runs of MPT models with PyTorch FSDP that llm-foundry publishes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import decoder
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.workload import Workload

_NETWORKS = {"ampere": "hgx-a100", "hopper": "hgx-h100"}
"""One adapter per GPU: 1600 Gb/s per node of eight A100 (the table), 3200 of H100 (MosaicML's releases)."""

_SHARDING = {
    "FULL_SHARD": (Zero.WEIGHTS, True, None),
    "SHARD_GRAD_OP": (Zero.WEIGHTS, False, None),
    "HYBRID_SHARD": (Zero.WEIGHTS, True, 8),
    "NO_SHARD": (Zero.NONE, True, None),
}
"""ZeRO stage (what ranks divide), whether weights are dropped after forward, and how many divide."""

_FORMS = ((True, "learned"), (False, "learned"), (False, "alibi"))
"""Biases and positions that releases of MPT had, distinguished by their number of parameters."""

_Cells = Mapping[str, str]


def llm_foundry(columns: Columns) -> Judged:
    """Seconds per iteration."""
    runs = PublishedRuns()
    for row, measured in enumerate(columns.numbers("iteration_s")):
        cells = {name: columns[name][row] for name in columns.text}
        chip = chip_of(cells["gpu"])
        if chip is None:
            runs.drop(NO_TEMPLATE)
        elif cells["sharding"] not in _SHARDING:
            runs.drop("sharding not known")
        else:
            family = str(chip.value("family"))
            framework = _framework(family)
            network = load_network(_NETWORKS[family])
            cluster = Cluster(int(cells["n_gpus"]), int(cells["global_batch_seqs"]), network)
            workload = _workload(cells, framework)
            runs.keep(PublishedRun(chip, workload, cluster, framework, _strategy(cells), float(measured)))
    return runs.judge()


@lru_cache(maxsize=2)
def _framework(family: str) -> Framework:
    return load_framework("llm-foundry-2023-hopper" if family == "hopper" else "llm-foundry-2023")


def _strategy(cells: _Cells) -> ParallelPlan:
    zero, reshards, group = _SHARDING[cells["sharding"]]
    return ParallelPlan(
        microbatch=int(cells["micro_batch"]),
        data_parallel=int(cells["n_gpus"]),
        recompute=Recompute.FULL if cells["act_ckpt"] == "True" else Recompute.NONE,
        zero=zero,
        reshards=reshards,
        shard_group=group,
        offload=frozenset({Offload.ACTIVATIONS} if cells["act_offload"] == "True" else ()),
    )


def _workload(cells: _Cells, framework: Framework) -> Workload:
    """The form of MPT that has the row's parameters; the first of all where none has."""
    sizes = tuple(int(cells[name]) for name in ("layers", "d_model", "heads", "vocab", "seq_len"))
    recipe = Recipe.FP8 if "fp8" in cells["precision"] else None
    forms = [_mpt(*sizes, *form, recipe, framework) for form in _FORMS]
    count = int(cells["n_params"])
    return next((form for form in forms if form.parameter_count == count), forms[0])


@lru_cache(maxsize=512)
def _mpt(
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    tokens: int,
    bias: bool,
    positions: str,
    recipe: Recipe | None,
    framework: Framework,
) -> Workload:
    dimensions = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "vocabulary": vocabulary,
        "max_positions": tokens,
        "activation": "gelu",
        "norm_shift": bias,
        "bias": bias,
        "positions": positions,
    }
    return decoder(dimensions, tokens, framework.attention, framework.fusion, "bf16", recipe=recipe)
