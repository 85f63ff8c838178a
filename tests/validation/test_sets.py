"""Rows of data sets as work: which are kept, which are left out and why, and what each stands for."""

from pathlib import Path

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.kernels import convolution_measurements, profiler_measurements
from phaze.validation.sets.kernels.profiler_measurements import Operator
from phaze.validation.sets.training import megatron_runs
from phaze.workload.work import Format, Unit

DEEPBENCH = (
    *("device", "dtype", "w", "h", "in_ch", "batch", "out_ch", "r", "s", "pad_h", "pad_w"),
    *("stride_v", "stride_h", "fwd_ms", "bwd_input_ms", "bwd_weight_ms"),
)


def columns(names, *rows):
    text = dict(zip(names, zip(*(map(str, row) for row in rows), strict=True), strict=True))
    return Columns(Path("rows.csv"), text, len(rows))


def test_deepbench_compares_every_measured_pass_and_counts_the_others():
    vgg = (56, 56, 128, 8, 256, 3, 3, 1, 1, 1, 1)
    judged = convolution_measurements.deepbench(
        columns(
            DEEPBENCH,
            ("Tesla P100", "fp32", *vgg, 0.7, 0.7, 0.8),
            ("Tesla P100", "fp32", *vgg, 0.7, "", 0.8),
            ("Unheard of", "fp32", *vgg, 0.7, 0.7, 0.8),
            ("Tesla P100", "posit", *vgg, 0.7, 0.7, 0.8),
        )
    )
    assert len(judged.measured) == 5
    assert judged.excluded == {
        "pass not measured": 1,
        "no template of this chip": 3,
        "operator not among those compared": 3,
    }
    assert (judged.predicted[Fidelity.CALIBRATED] > judged.predicted[Fidelity.ROOFLINE] / 4).all()


@pytest.mark.parametrize(
    ("layer", "kernel"),
    [
        ((700, 161, 1, 4, 32, 5, 20, 0, 0, 2, 2), "as given"),
        ((350, 80, 64, 16, 128, 5, 5, 1, 1, 2, 2), "by layer"),
        ((28, 28, 192, 16, 32, 5, 5, 2, 2, 1, 1), "by padding"),
    ],
)
def test_deepbench_kernels_that_are_not_given_are_known(layer, kernel):
    times = (0.5, 0.5, 0.5)
    without = (*layer[:5], "", "", *layer[7:])
    rows = (("Tesla M40", "fp32", *sizes, *times) for sizes in (layer, without))
    given, known = (
        convolution_measurements.deepbench(columns(DEEPBENCH, *rows))
        .predicted[Fidelity.CALIBRATED]
        .reshape(2, 3)
    )
    assert given == pytest.approx(known), kernel


def test_neusight_convolutions_start_late():
    names = ("device", "batch", "in_ch", "out_ch", "kernel", "in_hw", "stride", "out_hw", "latency_ms")
    rows = (("Tesla P4", 1, 8, 8, 3, 8, 1, 8, 0.4), ("Unheard of", 1, 8, 8, 3, 8, 1, 8, 0.4))
    judged = convolution_measurements.neusight(columns(names, *rows))
    assert judged.excluded == {"no template of this chip": 1}
    assert judged.predicted[Fidelity.CALIBRATED][0] > 3e-4 > judged.predicted[Fidelity.ROOFLINE][0]


PROFILES = ("device", "op_name", "dtype", "micro_batch", "batch", "m", "n", "k", "fwd_us", "bwd_us")


def test_profiles_keep_operators_they_know():
    judged = profiler_measurements.backward(
        columns(
            PROFILES,
            ("NVIDIA A100 40GB", "enc-MLP-gelu", "fp16", 8, 1, 16384, 28672, "", 1600, 2800),
            ("NVIDIA A100 40GB", "enc-rotary", "fp16", 8, 1, 16384, 28672, "", 1600, 2800),
            ("NVIDIA A100 40GB", "enc-MLP-gelu", "fp8", 8, 1, 16384, 28672, "", 1600, 2800),
        )
    )
    assert judged.excluded == {"operator not among those compared": 2}
    assert judged.predicted[Fidelity.ANALYTIC][0] == pytest.approx(2.8e-3, rel=0.3)


def operator(name, format_=Format.FP16, samples=2):
    return Operator(name, samples, 1, 4096, 1024, 512, format_)


@pytest.mark.parametrize("name", profiler_measurements.FORWARD)
def test_every_operator_is_kernels_in_both_directions(name):
    for kernels in (profiler_measurements.FORWARD[name], profiler_measurements.BACKWARD[name]):
        for format_ in profiler_measurements.BYTES:
            works = kernels(operator(name, format_))
            assert works
            assert all(work.unit is Unit.VECTOR or work.gemms[0].operands is format_ for work in works)


def test_traffic_of_a_dropout_with_bias_and_residual():
    n = 4096 * 1024
    moved = [w.stream_bytes / n for w in profiler_measurements.FORWARD["enc-post-MLP-dropout"](operator("x"))]
    assert sorted(moved) == [2 * 2, 2 * 2 + 1, 3 * 2]


def test_one_sample_is_not_transposed():
    one, two = (profiler_measurements.FORWARD["final-layernorm"](operator("x", samples=s)) for s in (1, 2))
    assert len(two) == len(one) + 1


def test_memory_of_a_transformer_is_korthikantis():
    heads, hidden, layers, tensor, pipeline, batch = 16, 1024, 8, 4, 2, 2
    unit, scores = 2048 * batch * hidden, 5 * heads * 2048 / (hidden * tensor)
    in_flight = layers * (1 + 1 / (2 * 3))  # 530B runs three stages on each device
    bytes_ = {
        "no recompute": unit * (10 + 24 / tensor + scores),
        "seq parallel + selective recompute": unit * 34 / tensor,
        "full recompute": unit * 2,
    }
    gib = 2.0**30
    names = ("model", "heads", "hidden", "layers", "tp", "pp", "micro_batch", "config", "metric", "value")
    shape = (heads, hidden, layers, tensor, pipeline, batch)
    rows = [
        ("530B", *shape, config, "activations per GPU", in_flight * kept / gib)
        for config, kept in bytes_.items()
    ]
    share = 100 * bytes_["full recompute"] / bytes_["no recompute"]
    rows.append(("530B", *shape, "full recompute", "activation memory relative to the baseline", share))
    rows.append(("530B", *shape, "no recompute", "colour", 1))
    judged = megatron_runs.layer_memory(columns(names, *rows))
    assert judged.predicted[Fidelity.ANALYTIC] == pytest.approx(judged.measured, rel=1e-3)
    assert judged.excluded == {"another kind of memory": 1}
