"""Rows of measured vector operators as the kernels that they ran."""

from collections.abc import Mapping

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.kernels import eager_measurements, layer_measurements, vector_measurements
from phaze.validation.sets.kernels.eager_measurements import BACKWARD, FORWARD, Operator, sides
from phaze.workload.work import Format


def columns(tmp_path, rows: Mapping[str, tuple[str, ...]]) -> Columns:
    return Columns(tmp_path, dict(rows), len(next(iter(rows.values()))))


@pytest.mark.parametrize(
    ("shape", "rows_and_columns"),
    [
        ([1024], (8, 128)),
        ([1025], (16, 128)),
        ([64, 96], (64, 128)),
        ([96, 64], (64, 128)),
        ([16, 16, 16], (256, 128)),
        ([8, 104, 8], (64, 128)),
        ([2, 128, 1536], (256, 1536)),
    ],
)
def test_tensors_fill_register_tiles(shape, rows_and_columns):
    assert vector_measurements.tiled(shape) == rows_and_columns


def test_products_of_a_linear_layer_with_and_without_bias():
    plain = Operator("linear", ((8, 512, 1024),), (8, 512, 4096))
    biased = Operator("linear", ((4096,), (4096, 1024), (1024, 4096)), (4096, 4096))
    assert sides(plain) == sides(biased) == (1, 4096, 1024, 4096)
    (forward,), gradients = FORWARD["linear"](plain), BACKWARD["linear"](plain)
    assert [work.macs for work in gradients] == [forward.macs] * 2
    assert forward.gemms[0].operands is Format.FP32


def test_batched_products():
    op = Operator("bmm", ((8, 16, 512, 64), (8, 16, 64, 256)), (8, 16, 512, 256))
    assert sides(op) == (128, 512, 64, 256)


@pytest.mark.parametrize(
    ("kind", "inputs", "passes"),
    [
        ("mul", 2, (3, 3)),  # dy x and dy w
        ("div", 1, (2,)),
        ("pow", 1, (2, 2, 3)),  # power, factor, product
        ("dropout", 1, (1.25, 2, 3)),
        ("softmax", 1, (3, 3)),
        ("layernorm", 1, (3, 2)),
    ],
)
def test_traffic_of_eager_gradients(kind, inputs, passes):
    op = Operator(kind, ((64, 256),) * inputs, (64, 256))
    assert [w.stream_bytes / (4 * 64 * 256) for w in BACKWARD[kind](op)] == pytest.approx(passes)


def in_model_rows(tmp_path):
    return columns(
        tmp_path,
        {
            "device": ("Tesla T4",) * 5,
            "mode": ("inf", "train", "train", "train", "inf"),
            "op": ("dropout", "dropout", "linear", "linear", "embedding"),
            "input_shapes": ("[[8, 64]]", "[[8, 64]]", "[[2, 512]]", "[[4096, 8192]]", "[[2, 512]]"),
            "output_shape": ("(8, 64)", "(8, 64)", "(2, 512, 1024)", "(4096, 8192)", "(2, 512, 1024)"),
            "fwd_ms_median": ("0.01", "0.03", "0.1", "1.1", "0.1"),
            "bwd_ms_median": ("0.0", "0.03", "0.2", "1.5", "0.0"),
        },
    )


def test_rows_inside_models_are_kept_or_left_out_for_a_reason(tmp_path):
    forward, backward = (
        judge(in_model_rows(tmp_path)) for judge in (eager_measurements.forward, eager_measurements.backward)
    )
    assert (len(forward.measured), len(backward.measured)) == (3, 1)
    assert sum(forward.excluded.values()) == 2
    assert sum(backward.excluded.values()) == 4


def test_a_lookup_under_the_name_of_a_product_is_one(tmp_path):
    judged = eager_measurements.forward(in_model_rows(tmp_path))
    _, linear, embedding = judged.predicted[Fidelity.ANALYTIC]
    # the same kernel, started by another call of the framework
    assert linear == pytest.approx(embedding)


def test_two_kernels_take_as_long_as_both(tmp_path):
    def add(model):
        row = {"device": ("NVIDIA A40 48GB",), "model": (model,), "op": ("add",), "kind": ("vector",)}
        sizes = {"m": ("65536",), "n": ("8192",), "k": ("",), "latency_ms_median": ("5.0",)}
        return layer_measurements.vidur(columns(tmp_path, row | sizes)).predicted[Fidelity.CALIBRATED][0]

    assert add("microsoft/phi-2") == pytest.approx(2 * add("meta-llama/Llama-2-7b-hf"), rel=1e-3)
