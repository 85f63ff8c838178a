"""MLPerf Training 5.0 and 5.1: Llama 2 70B fine-tuned by adapters, Llama 3.1 8B and BERT-large pre-trained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from phaze.hardware.architecture import Architecture
from phaze.hardware.cluster_network import Network, load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import decoder, dimensions_of
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.training.mlperf_runs import NO_RATE, UNEVEN, UNKNOWN_NODES, bert
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Workload

NO_MODEL = "no dimensions of this model"

_DECODERS: Mapping[str, tuple[str, str]] = {
    "llama2_70b_lora": ("LLAMA 2 70B", "mlperf-2025-lora"),
    "llama31_8b": ("LLAMA 3.1 8B", "mlperf-2024"),
}
"""Model and framework by benchmark."""
_STATED: Mapping[tuple[str, ...], tuple[Recipe, tuple[int, int]]] = {
    ("5.1", "NVIDIA", "llama31_8b", "512"): (Recipe.FP8, (2, 4)),
    ("5.1", "Nebius", "llama2_70b_lora", "8"): (Recipe.NVFP4, (1, 1)),
}
"""Recipe, tensor and context degrees of submissions whose configuration is not the one that the table names: those that
their README or start script names (github mlcommons/training_results_v5.1, {theia,tyche}_ngpu512_ngc25.09_nemo in
NVIDIA/benchmarks/llama31_8b/implementations, Nebius/benchmarks/llama2_70b_lora/configs/nebius_b300_n1)."""
_TOKENS = 8192  # of a packed sample of both
_NODE = 8
_PCIE = ("NVL-",)  # cards whose clocks differ from those of the modules that bear their name

_Cells = Mapping[str, str]


def training(columns: Columns) -> Judged:
    """Seconds per step."""
    rows = [{name: columns[name][row] for name in columns.text} for row in range(columns.rows)]
    named = {_system(cells): _degrees(cells) for cells in rows if _degrees(cells)}
    runs = PublishedRuns()
    for cells in rows:
        run = _run(cells, named)
        if isinstance(run, str):
            runs.drop(run)
        else:
            runs.keep(run)
    return runs.judge()


_System = tuple[str, str, str]
_Degrees = tuple[int, int]


def _system(cells: _Cells) -> _System:
    """What equal systems of several submitters have in common."""
    return cells["benchmark"], cells["accelerator"], cells["accelerators"]


def _stated(cells: _Cells) -> tuple[Recipe, _Degrees] | None:
    return _STATED.get(tuple(cells[name] for name in ("round", "submitter", "benchmark", "accelerators")))


def _degrees(cells: _Cells) -> _Degrees | None:
    """Tensor and context degrees in the name of a configuration; None where it has none."""
    if stated := _stated(cells):
        return stated[1]
    named = cells["tp"] and cells["cp"]
    return (int(cells["tp"]), int(cells["cp"])) if named else None


def _run(cells: _Cells, named: Mapping[_System, _Degrees | None]) -> PublishedRun | str:
    """The run of a row, or why it is left out; `named`: degrees of equal systems."""
    if cells["benchmark"] not in (*_DECODERS, "bert"):
        return NO_MODEL
    if not cells["step_s"]:
        return NO_RATE
    chip, network = _chip(cells), _network(cells)
    if chip is None or network is None:
        return NO_TEMPLATE if chip is None else UNKNOWN_NODES
    if (plan := _plan(cells, named.get(_system(cells)))) is None:
        return UNEVEN
    workload, framework = _software(cells["benchmark"], _recipe(cells, chip))
    cluster = Cluster(int(cells["accelerators"]), int(cells["global_batch"]), network)
    measured = float(cells["step_s"])
    others = () if _degrees(cells) or cells["benchmark"] == "bert" else (plan,)
    return PublishedRun(chip, workload, cluster, framework, plan, measured, others=others)


def _chip(cells: _Cells) -> Architecture | None:
    name = cells["accelerator"]
    return None if any(part in name for part in _PCIE) else chip_of(name)


def _network(cells: _Cells) -> Network | None:
    """Of one node, of a rack of 72, or of several nodes on InfiniBand; None where a row names no such network."""
    name, several = cells["accelerator"], int(cells["accelerators"]) > _NODE
    if "GB200" in name or "GB300" in name:
        return load_network("nvl72")
    if several and not ("Infiniband" in cells["network"] or "400Gb/s" in cells["network"]):
        return None
    if "MI3" in name:
        return load_network("mi300x")
    return load_network("hgx-b200" if "B300" in name else "hgx-h100")


def _recipe(cells: _Cells, chip: Architecture) -> Recipe | None:
    """Linear layers: in 8 bits; in 4 where a configuration says so."""
    if cells["benchmark"] == "bert":
        return None
    if stated := _stated(cells):
        return stated[0]
    four = "fp4" in cells["precision_words"] and str(chip.value("family")) == "blackwell"
    return Recipe.NVFP4 if four else Recipe.FP8


def _plan(cells: _Cells, equal: _Degrees | None) -> ParallelPlan | None:
    """The plan in the name of a configuration, or of one for an equal system.

    Where neither has one: a replica for every sample of the batch, whose devices divide the tokens. None where
    devices and batch do not go together.
    """
    devices, batch = int(cells["accelerators"]), int(cells["global_batch"])
    if cells["benchmark"] == "bert":
        return None if batch % devices else ParallelPlan(batch // devices, data_parallel=devices)
    tensor, context = _degrees(cells) or equal or (1, max(devices // batch, 1))
    replicas = devices // (tensor * context)
    if devices % (tensor * context) or batch % replicas:
        return None
    zero = Zero.NONE if cells["benchmark"] == "llama2_70b_lora" else Zero.OPTIMIZER
    sharding = Sharding(tensor, tensor > 1, context)
    return ParallelPlan(1, data_parallel=replicas, sharding=sharding, zero=zero)


@lru_cache(maxsize=16)
def _software(benchmark: str, recipe: Recipe | None) -> tuple[Workload, Framework]:
    """A model, and what submissions run it by."""
    if benchmark == "bert":
        return bert()
    model, software = _DECODERS[benchmark]
    framework, dimensions = load_framework(software), dimensions_of(model, _TOKENS)
    built = decoder(dimensions or {}, _TOKENS, framework.attention, framework.fusion, "bf16", recipe=recipe)
    return built, framework
