"""MLPerf's training throughput of BERT-large and ResNet-50, data parallelism alone.

A row says neither how long BERT's samples are nor what joins its nodes. Half of the 512 positions of a sample are
padding, which submissions leave out (arXiv 2107.02027), and 15 % of the others are predicted; of several nodes
only NVIDIA's own systems are compared, whose network is published.
"""

from __future__ import annotations

import re
from functools import lru_cache

from phaze.hardware.network import Network, load_network
from phaze.placement.cluster import Cluster
from phaze.placement.strategy.framework import Framework, load_framework
from phaze.placement.strategy.strategy import Strategy
from phaze.validation.cases import Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.validation.training import Run, Runs
from phaze.workload.workload import Workload
from phaze.workload.workload_library import builtin_spec
from phaze.workload.workload_loader import LoadOptions, load_workload, workload_of

UNKNOWN_NODES = "nodes joined by a network that the row does not say"
UNEVEN = "a batch that replicas cannot share evenly"
_TOKENS = 512 // 2
_SCORED = round(0.15 * _TOKENS)
_NODE = 8
_DGX = re.compile(r"^(dgxh100|eos)")


def throughput(columns: Columns) -> Judged:
    """Seconds of an iteration: the global batch over the logged throughput, evaluation left out where it is logged."""
    runs = Runs()
    rows = zip(*(columns[name] for name in ("system", "accelerator", "benchmark")), strict=True)
    devices, batches = (columns.numbers(name) for name in ("n_accelerators", "global_batch"))
    rates = zip(columns["samples_per_s_logged"], columns["samples_per_s_incl_eval"], strict=True)
    for row, ((system, accelerator, benchmark), rate) in enumerate(zip(rows, rates, strict=True)):
        size, batch = int(devices[row]), int(batches[row])
        chip, network = chip_of(accelerator), network_of(system, accelerator, size)
        if chip is None or network is None:
            runs.drop(NO_TEMPLATE if chip is None else UNKNOWN_NODES)
        elif batch % size:
            runs.drop(UNEVEN)
        else:
            measured_s = batch / next(float(text) for text in rate if text)
            strategy = Strategy(batch // size, data_parallel=size)
            cluster = Cluster(size, batch, network)
            workload, framework = _software(benchmark)
            runs.keep(Run(chip, workload, cluster, framework, strategy, measured_s))
    return runs.judge()


def network_of(system: str, accelerator: str, devices: int) -> Network | None:
    """Of one node, or of several whose network is published; None for others ("2xNODE", or more than 8 devices)."""
    several = re.match(r"([2-9]|\d\d+)x[A-Z]", system) or devices > _NODE
    if several and not _DGX.match(system):
        return None
    if "NVIDIA" not in accelerator:
        return load_network("default")
    if "SXM" not in accelerator:
        return load_network("pcie4")
    return load_network("hgx-h100" if "H100" in accelerator or "H200" in accelerator else "hgx-a100")


@lru_cache(maxsize=4)
def _software(benchmark: str) -> tuple[Workload, Framework]:
    """A model, and what submissions run it by."""
    if benchmark.startswith("ResNet"):
        return load_workload("resnet50"), load_framework("data-parallel")
    spec = builtin_spec("bert-large").model_dump(mode="json", exclude_unset=True)
    content = {**spec, "dimensions": {**spec["dimensions"], "scored": _SCORED}, "sequence_length": _TOKENS}
    return workload_of(content, "bert-large", LoadOptions()), load_framework("data-parallel-pytorch")
