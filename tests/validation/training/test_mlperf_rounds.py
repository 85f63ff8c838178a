"""MLPerf's rounds 5.0 and 5.1: plans of rows that name none, what is left out, and adapters beside frozen weights."""

from pathlib import Path

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import to_table
from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.memory.recomputation import with_adapters_only
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.training import mlperf_rounds
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Sharding

NAMES = (
    *("round", "submitter", "benchmark", "accelerator", "network", "precision_words"),
    *("accelerators", "global_batch", "tp", "pp", "cp", "step_s"),
)
LORA, H200 = "llama2_70b_lora", "NVIDIA H200-SXM5-141GB"


def columns(*rows):
    cells = [("5.1", "Dell", *row) for row in rows]
    text = dict(zip(NAMES, zip(*(map(str, row) for row in cells), strict=True), strict=True))
    return Columns(Path("rows.csv"), text, len(rows))


def test_a_row_takes_the_plan_of_an_equal_system():
    judged = mlperf_rounds.training(
        columns((LORA, H200, "", "", 8, 8, 1, 1, 2, 3.15), (LORA, H200, "", "", 8, 8, "", "", "", 3.15))
    )
    named, taken = judged.predicted[Fidelity.CALIBRATED]
    assert named == taken == pytest.approx(3.15, rel=0.2)
    assert judged.assumed == 1


def test_a_submission_runs_by_the_configuration_that_it_names():
    """The same row of another submitter takes the table's words."""
    cells = dict(
        zip(
            NAMES,
            ("5.1", "Nebius", LORA, "NVIDIA B300-SXM-270GB", "", "", "8", "8", "", "", "", "0.9"),
            strict=True,
        )
    )
    chip = mlperf_rounds._chip(cells)
    assert mlperf_rounds._recipe(cells, chip) is Recipe.NVFP4
    assert mlperf_rounds._recipe({**cells, "submitter": "Lenovo"}, chip) is Recipe.FP8
    named = {
        **cells,
        "submitter": "NVIDIA",
        "benchmark": "llama31_8b",
        "accelerators": "512",
        "precision_words": "fp4",
    }
    assert mlperf_rounds._recipe(named, chip) is Recipe.FP8
    assert mlperf_rounds._degrees(named) == (2, 4)
    assert mlperf_rounds._recipe({**named, "accelerators": "8"}, chip) is Recipe.NVFP4


def test_what_is_left_out_is_counted():
    judged = mlperf_rounds.training(
        columns(
            (LORA, "NVIDIA H200-NVL-141GB", "", "", 8, 8, 1, 1, 2, 3.4),
            (LORA, H200, "", "", 16, 8, 1, 1, 2, 1.7),
            ("rgat", H200, "", "", 8, 16384, "", "", "", 0.09),
            ("bert", H200, "", "", 8, 770, "", "", "", 0.09),
            ("bert", H200, "", "", 8, 768, "", "", "", ""),
        )
    )
    assert not len(judged.measured)
    assert judged.excluded == {
        "no template of this chip": 1,
        mlperf_rounds.UNKNOWN_NODES: 1,
        mlperf_rounds.NO_MODEL: 1,
        mlperf_rounds.UNEVEN: 1,
        mlperf_rounds.NO_RATE: 1,
    }


def test_frozen_weights_have_no_gradients():
    workload, framework = mlperf_rounds._software(LORA, Recipe.FP8)
    chip = mlperf_rounds._chip({"accelerator": H200})
    cells = {"benchmark": LORA, "accelerators": "8", "global_batch": "8", "tp": "", "cp": ""}
    cells |= {"round": "5.0", "submitter": "Dell"}
    plan = mlperf_rounds._plan(cells, (1, 2))
    cluster = Cluster(8, 8, load_network("hgx-h100"))
    frozen, trained = (
        Estimator(workload, to_table([chip]), cluster, framework.model_copy(update=changes)).layer_costs(plan)
        for changes in ({}, {"trains_adapters": False})
    )
    assert frozen.backward.weight_s == pytest.approx(0.0)
    assert frozen.forward.kernels_s.sum() > trained.forward.kernels_s.sum()  # adapters beside products
    lost = (trained.backward.kernels_s - frozen.backward.kernels_s).sum()
    assert 0.8 * trained.backward.weight_s.sum() < lost < trained.backward.weight_s.sum()


def test_adapters_move_operands_and_results_of_attention():
    """The products of 8,192 rows: with 8,192 into 10,240 columns, and with 8,192 into 8,192."""
    workload, _ = mlperf_rounds._software(LORA, Recipe.FP8)
    chain = workload.chain(1, Sharding(1), selective=False, keeps_products=True)
    layer = next(one for one in with_adapters_only(chain).layers if one.kind == "block.attention")
    forward = {work.name: work.stream_bytes for work in layer.forward.works if "adapter" in work.name}
    rows, wide, joint = 8192, 8192, 10240
    assert forward == {
        "qkv.adapter": 2 * rows * (3 * wide + 4 * joint),
        "projection.adapter": 2 * rows * (3 * wide + 4 * wide),
    }
    names = [work.name for work in layer.forward.works]
    qkv, beside = names.index("qkv"), names.index("qkv.adapter")
    after = {a: {b for first, b in layer.forward.edges if first == a} for a in (qkv, beside)}
    assert after[qkv] == after[beside] != set()
    backward = [work.name for work in layer.backward.works]
    assert [name for name in backward if "adapter" in name] == ["projection.adapter.dX", "qkv.adapter.dX"]
    assert not any(name.endswith(".dW") for name in backward)
    mlp = next(one for one in with_adapters_only(chain).layers if one.kind == "block.mlp")
    assert not any("adapter" in work.name for work in (*mlp.forward.works, *mlp.backward.works))
