"""nanotron's runs: how its stages are cut, which rows tell of the plan they state, and what its two versions keep."""

from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import load_framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.model_validation import f1_score
from phaze.validation.sets.training import nanotron_runs
from phaze.validation.sets.training.nanotron_runs import stages_of
from phaze.workload.parallel_degrees import Sharding

HEADS = {"1B": 128256 * 2048 / 67108864, "3B": 128256 * 3072 / 113246208, "8B": 128256 * 4096 / 243269632}
NAMES = (
    *("model", "gpus", "micro_batch", "global_batch", "dp", "pp", "tp", "zero_stage", "sequence_length"),
    *("layers", "hidden", "ffn", "heads", "vocab", "tied_embeddings", "status", "step_s", "peak_memory_gb"),
)
SIZES = (4096, 16, 2048, 8192, 32, 128256)


def columns(*rows):
    """Rows of the 1B model: (microbatch, dp, pp, tp, zero, step_s, memory); a crash has no time."""
    cells = []
    for microbatch, dp, pp, tp, zero, step, memory in rows:
        status, tied = ("measured" if step else "crashed_or_oom"), ("no" if pp > 1 else "yes")
        plan = ("1B", dp * pp * tp, microbatch, 256, dp, pp, tp, zero)
        cells.append((*plan, *SIZES, tied, status, step, memory))
    text = dict(zip(NAMES, zip(*(map(str, row) for row in cells), strict=True), strict=True))
    return Columns(Path("rows.csv"), text, len(rows))


@pytest.mark.parametrize(
    ("blocks", "model", "stages", "expected"),
    [
        (16, "1B", 1, (16,)),
        (16, "1B", 4, (5, 5, 5, 1)),
        (16, "1B", 8, (3, 2, 3, 2, 3, 2, 1)),  # the loss alone on the eighth
        (16, "1B", 16, None),  # all but one of 66 such runs crashed
        (28, "3B", 8, (4, 4, 4, 4, 4, 4, 4, 0)),  # the head alone on the last
        (32, "8B", 4, (9, 9, 8, 6)),
    ],
)
def test_a_head_counts_as_the_blocks_it_costs(blocks, model, stages, expected):
    assert stages_of(blocks, HEADS[model], stages) == expected


def test_rows_that_say_nothing_of_their_plan_are_counted():
    fine, memory = (4, 2, 1, 8, 0, 2.67, 12.9), 12.9
    judged = nanotron_runs.times(
        columns(
            fine,
            (4, 2, 1, 8, 0, 8.1, memory),  # three times as long
            (8, 2, 1, 8, 0, 5.6, 21.0),  # longer than twice what half the microbatch takes
            (1, 1, 8, 1, 0, 6.0, 20.0),
            (1, 1, 16, 1, 0, 6.0, 20.0),
            (64, 2, 1, 8, 0, "", ""),
            (16, 4, 1, 16, 0, 2.5, 13.3),
        )
    )
    assert judged.excluded == {
        nanotron_runs.SLOW: 2,
        nanotron_runs.LOSS_APART: 1,
        nanotron_runs.EMPTY_STAGE: 1,
        nanotron_runs.CRASHED: 1,
        nanotron_runs.HOST_LATE: 1,
    }
    assert judged.predicted[Fidelity.CALIBRATED] == pytest.approx([2.67], rel=0.1)


def test_memory_and_what_crashed():
    rows = columns((4, 2, 1, 8, 0, 2.67, 12.9), (4, 2, 1, 8, 1, 8.1, 8.7), (64, 2, 1, 8, 0, "", ""))
    judged = nanotron_runs.memory(rows)
    assert judged.predicted[Fidelity.ANALYTIC] == pytest.approx(judged.measured, rel=0.15)
    yes = nanotron_runs.fits(rows)
    assert yes.measured.tolist() == yes.predicted[Fidelity.ANALYTIC].tolist() == [1, 1, 0]


def held(*row):
    """GiB of rank 0 of a row, with and without a host that runs ahead, and what its last stage needs."""
    one = next(iter(nanotron_runs._rows(columns(row))))
    ahead, waiting = (one.held_bytes(ahead=ahead) / 2**30 for ahead in (True, False))
    return ahead, waiting, one.devices_bytes(one.version())[-1] / 2**30


def test_the_device_that_writes_memory_down_is_of_the_first_stage():
    ahead, waiting, last = held(8, 32, 2, 1, 1, 1.0, 44.9)  # one microbatch: the last stage has the scores
    assert ahead == waiting == pytest.approx(44.9, rel=0.05)
    assert last > 1.7 * waiting


def test_a_stage_with_the_loss_alone_lets_the_others_keep_one_more_microbatch():
    one = next(iter(nanotron_runs._rows(columns((4, 2, 8, 1, 1, 1.0, 46.3)))))
    (first, *_), (device, *_) = one.devices_bytes(one.version()), one._devices(one.version())
    assert len(one.stages) == 7
    assert first - device.total_bytes == pytest.approx(device.activations_bytes / 7)


@pytest.mark.parametrize(
    ("row", "microbatches"),
    [
        ((8, 4, 2, 16, 1, 1.0, 5.3), 0),  # two stages whose launches take longer than their kernels
        ((8, 4, 4, 8, 1, 1.0, 13.4), 2),  # of the three that fill the pipeline all but one
        ((1, 16, 8, 8, 1, 1.0, 2.6), 6),
        ((64, 1, 2, 4, 1, 1.0, 70.0), 1),  # kernels that take longer than their launches
    ],
)
def test_gathered_operands_wait_while_the_host_is_ahead(row, microbatches):
    ahead, waiting, _ = held(*row)
    stage = next(iter(nanotron_runs._rows(columns(row)))).stages[0]
    operand = row[0] * 4096 * 2048 * 2 * (1 - 1 / row[3]) / 2**30
    assert ahead - waiting == pytest.approx(microbatches * 2 * stage * operand, rel=1e-6)


def test_nothing_waits_in_a_run_that_has_no_memory_for_it():
    row = (64, 1, 2, 8, 1, 1.0, 70.0)
    ahead, waiting, _ = held(*row)
    (said,) = nanotron_runs.memory(columns(row)).predicted[Fidelity.CALIBRATED] / 2**30
    assert ahead > 80 > waiting == said
    assert nanotron_runs.fits(columns(row)).predicted[Fidelity.CALIBRATED] == [0.0]


def test_f1_weighs_misses_and_false_alarms():
    measured = np.array([1.0, 1.0, 1.0, 0.0])
    assert f1_score(np.array([1.0, 1.0, 0.0, 1.0]), measured) == pytest.approx(2 / 3)
    assert f1_score(np.zeros(4), np.zeros(4)) == 0.0


def made(devices=8, **changes):
    framework = load_framework("nanotron-2025").model_copy(update=changes)
    llama = nanotron_runs._llama((16, 2048, 8192, 32, 128256), 4096, True, framework)
    cluster = Cluster(devices, devices, load_network("hgx-h100"))
    return Estimator(llama, to_table([load_architecture("h100")]), cluster, framework)


PLAN = ParallelPlan(1, sharding=Sharding(8, sequence=True))


def test_gathered_operands_and_gates_that_are_kept():
    none, tokens = made(keeps_gathered=False, keeps_gates=False).chain(PLAN), 4096 * 2048
    gathered, gates = made(keeps_gates=False).chain(PLAN), made(keeps_gathered=False).chain(PLAN)
    for kind, plain, whole, activated in (
        (a.kind, a, b, c) for a, b, c in zip(none.layers, gathered.layers, gates.layers, strict=True)
    ):
        reads = kind in ("block.attention", "block.mlp", "head.logits")
        more = 2 * tokens * (1 - 1 / 8) if reads else 0.0
        assert whole.saved_bytes - plain.saved_bytes == pytest.approx(more)
        assert activated.saved_bytes - plain.saved_bytes == (2 * 4 * tokens / 8 if kind == "block.mlp" else 0)
        assert len(plain.backward.works) - len(whole.backward.works) == reads
        assert whole.forward == plain.forward


def test_exchanges_cost_the_host_launches_of_every_rank_in_jobs_of_several_servers():
    for devices, launches in ((8, 0.0), (16, 2.0 * 8)):
        plain, slow = made(devices), made(devices, exchange_launches=2.0)
        exchanges = sum(work.link is not None for work in plain.chain(PLAN).layers[1].forward.works)
        few, many = (one.layer_costs(PLAN).forward.launches[1] for one in (plain, slow))
        assert many - few == launches * exchanges
        assert exchanges > 0
