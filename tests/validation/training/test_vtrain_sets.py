"""vTrain's rows as runs, and what the rows on one node are made of."""

import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.validation.measured.measurement_columns import Columns, read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.sets.training import deepspeed_runs

DATA = os.environ.get("DSE_DATA")
NAMES = (
    *("gpu", "n_gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "seq_len"),
    *("tp", "dp", "pp", "iteration_ms"),
)
NODE = "NVIDIA A100 (8-GPU NVSwitch node)"
CLUSTER = "NVIDIA A100 cluster, 8 GPU/node, 800 Gb/s per node"


def columns(*rows):
    text = dict(zip(NAMES, zip(*(map(str, row) for row in rows), strict=True), strict=True))
    return Columns(Path("rows.csv"), text, len(rows))


def test_small_kernels_wait_for_the_host_whatever_the_width():
    rows = [(NODE, tp, 8, 1, 1024, 16, 12, 1024, tp, 1, 1, 350) for tp in (2, 4, 8)]
    judged = deepspeed_runs.single_node(columns(*rows))
    seconds = judged.predicted[Fidelity.CALIBRATED]
    assert seconds.max() / seconds.min() < 1.05
    assert judged.measured == pytest.approx([0.35] * 3)


def test_chips_without_a_template_are_counted():
    judged = deepspeed_runs.single_node(columns(("Unheard of", 2, 8, 1, 1024, 16, 12, 1024, 2, 1, 1, 350)))
    assert judged.excluded == {"no template of this chip": 1}


def test_tensor_groups_over_two_nodes_wait_for_the_adapters():
    rows = [(CLUSTER, 64, 512, 8, 3072, 32, 6, 2048, tp, 64 // tp, 1, 5000) for tp in (4, 8, 16)]
    four, eight, sixteen = deepspeed_runs.multi_node(columns(*rows)).predicted[Fidelity.CALIBRATED]
    assert eight - four < 0.5 * (sixteen - eight)


@pytest.mark.skipif(DATA is None, reason="DSE_DATA names no measurements")
def test_rows_on_one_node_are_composed():
    """At all else equal the time is a line over the microbatches, closer than any timer repeats: six digits."""
    path = Path(str(DATA)) / "validation" / "e2e_vtrain_single_node.csv"
    found = read_columns(path, TABLES[path.stem])
    names = ("hidden", "layers", "tp", "dp", "pp", "micro_batch", "global_batch", "iteration_ms")
    groups = defaultdict(list)
    for *setting, each, batch, ms in zip(*map(found.numbers, names), strict=True):
        groups[*setting, each].append((batch / setting[3] / each, ms))
    several = [np.array(rows).T for rows in groups.values() if len(rows) >= 3]
    assert len(several) > 100
    for microbatches, ms in several:
        line = np.polynomial.Polynomial.fit(microbatches, ms, 1)
        assert line(microbatches) == pytest.approx(ms, rel=1e-5)
