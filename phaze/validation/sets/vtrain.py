"""Iterations of GPT models under Megatron-DeepSpeed on A100, as vTrain publishes them (arXiv 2312.12391).

Rows on one node are no separate timings, whatever their provenance says: at all else equal the time is a line over the
microbatches to the six digits printed, and what a second replica adds is the same to a microsecond in iterations of
0.1 and of 1.3 s: what the source's table of all-reduces has for 16-bit gradients (docs/decisions/0023). They compare
the model with a composition of some 24 times of blocks, not with runs. Rows of several nodes scatter as runs do.
"""

from __future__ import annotations

from phaze.hardware.architecture import Architecture
from phaze.placement.cluster import Cluster, Recompute
from phaze.placement.strategy.framework import load_framework
from phaze.placement.strategy.strategy import Strategy
from phaze.validation.cases import Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.models import gpt
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.validation.systems import network_of
from phaze.validation.training import Run, Runs
from phaze.workload.sharding.parallel_degrees import Sharding

_FRAMEWORK = "megatron-deepspeed-2022"
_VOCABULARY = 50304  # GPT-2's, padded to a multiple of 128
_CLUSTER_CHIP = (
    "A100-SXM 80GB"  # inferred: one row has 3.6 billion parameters and their optimizer on each device
)
_SIZES = ("layers", "hidden", "heads", "seq_len", "tp", "dp", "pp", "micro_batch", "n_gpus", "global_batch")


def single_node(columns: Columns) -> Judged:
    """Two to eight devices of one node."""
    return _judge(columns, "hgx-a100", None)


def multi_node(columns: Columns) -> Judged:
    """Eight to 64 nodes."""
    return _judge(columns, "a100-800g", chip_of(_CLUSTER_CHIP))


def _judge(columns: Columns, network: str, known: Architecture | None) -> Judged:
    """Rows on a network; of a chip that is `known`, or the one that they name."""
    runs, framework, wires = Runs(), load_framework(_FRAMEWORK), network_of(network)
    measured = columns.numbers("iteration_ms") * 1e-3
    for row, name in enumerate(columns["gpu"]):
        chip = known or chip_of(name)
        if chip is None:
            runs.drop(NO_TEMPLATE)
            continue
        layers, hidden, heads, tokens, tp, dp, pp, each, devices, batch = (
            int(columns[size][row]) for size in _SIZES
        )
        workload = gpt(
            layers, hidden, heads, _VOCABULARY, tokens, framework.attention, framework.fusion, "fp16"
        )
        strategy = Strategy(each, dp, pp, Sharding(tp), recompute=Recompute.FULL)
        cluster = Cluster(devices, batch, wires)
        runs.keep(Run(chip, workload, cluster, framework, strategy, float(measured[row])))
    return runs.judge()
