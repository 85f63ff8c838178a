"""The stream law: physical limits, monotonicity, and hand-worked cases."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import fitted_constants, law_of
from phaze.cost.kernels.kernel_laws import Shape, kernels_s, shape_of
from phaze.cost.kernels.streaming_kernels import StreamChip, StreamLaw, Streams, stream_chip, streams_s
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.hardware_fields import field_table
from phaze.validation.measured.single_operators import elementwise, norm, product, softmax
from phaze.workload.work import Unit, Work
from phaze.workload.workload_loader import load_workload

TABLE = to_table([load_architecture("a100-80gb")])
A100 = stream_chip(TABLE)
LAW = law_of(StreamLaw, "streams.yaml", "ampere")
PLAIN = StreamLaw(launch_cycles=0.0, memory_efficiency=1.0)  # memory alone, nothing lost
FILES = ("streams.yaml", "serial_streams.yaml")
WORKS = st.builds(
    Work,
    st.just("any"),
    st.sampled_from(["elementwise", "softmax", "norm", "embedding"]),
    st.just(Unit.VECTOR),
    vector_cycles=st.floats(0, 1e12),
    stream_bytes=st.floats(1, 1e12),
    rows=st.integers(0, 10**6),
    access_bytes=st.sampled_from([0.0, 2.0, 4.0]),
)


def seconds(work, law=LAW, chip=A100):
    return float(streams_s(Streams.of([work]), chip, law)[0])


def test_fields_of_the_a100():
    assert (A100.cores, A100.alus, A100.clock_hz) == (108, 64, 1.41e9)
    assert A100.row_bytes == 192 * 1024


@pytest.mark.parametrize("file", FILES)
def test_families_with_constants_are_choices_of_the_field(file):
    assert set(fitted_constants(StreamLaw, file)) <= set(field_table()["family"].choices)


@given(WORKS)
def test_never_faster_than_memory_or_cache(work):
    fastest = A100.memory_bytes_per_s + LAW.cache_bytes_per_cycle * A100.cores * A100.clock_hz
    assert seconds(work) > work.stream_bytes / fastest


@given(WORKS, st.floats(1.01, 3))
def test_more_bytes_or_arithmetic_never_take_less(work, factor):
    for name in ("stream_bytes", "vector_cycles"):
        more = replace(work, **{name: getattr(work, name) * factor})
        assert seconds(more) >= seconds(work) * (1 - 1e-12)


@given(WORKS, st.sampled_from([f.name for f in fields(StreamChip) if f.name != "cores"]), st.floats(1.01, 3))
def test_more_of_anything_never_slows(work, name, factor):
    bigger = replace(A100, **{name: getattr(A100, name) * factor})
    assert seconds(work, chip=bigger) <= seconds(work) * (1 + 1e-12)


def test_a_cold_stream_takes_its_bytes_over_the_bandwidth():
    work = elementwise("add", 1 << 15, 1 << 15, operands=2)
    assert seconds(work, PLAIN) == pytest.approx(3 * 2.0 * 2**30 / A100.memory_bytes_per_s)


def test_a_small_tensor_comes_from_the_cache():
    law = replace(PLAIN, cache_share=0.5, cache_bytes_per_cycle=20.0)
    work = elementwise("relu", 1024, 1024)
    assert seconds(work, law) == pytest.approx(4 * 2.0**20 / (20 * 108 * 1.41e9), rel=1e-3)
    assert seconds(work, law) < seconds(work, PLAIN)


@pytest.mark.parametrize(("make", "passes"), [(softmax, 4), (lambda m, n: norm("layer", m, n), 3)])
def test_rows_that_do_not_fit_are_read_again_for_every_reduction(make, passes):
    law = replace(PLAIN, norm_rows=16.0, softmax_rows=4.0)
    short, long = make(1 << 20, 256), make(256, 1 << 20)
    once = 2 * 2.0 * 2**28 / A100.memory_bytes_per_s
    assert seconds(short, law) == pytest.approx(once, rel=1e-3)
    assert seconds(long, law) == pytest.approx(once * passes / 2, rel=1e-2)


def test_threads_that_walk_a_row_wait_for_each_step():
    law = replace(PLAIN, step_cycles=300.0)
    rows = 2 * 108 + 1  # two in each multiprocessor and one left for a second wave
    work = replace(elementwise("rope", rows, 4096), rows=rows, access_bytes=2.0)
    # 8192 loads and stores of a row, 1024 threads
    assert seconds(work, law) == pytest.approx(2 * 8 * 300 / 1.41e9)


@pytest.mark.parametrize("name", ["h100", "l40s", "a40", "a100", "p100"])
def test_functions_run_at_the_rate_of_the_integer_alus(name):
    """fp32 ALUs of a core have doubled, its conversions, special functions and integers have not."""
    table = to_table([load_architecture(name)])
    assert stream_chip(table).alus == 64
    free = StreamLaw(launch_cycles=0.0, memory_efficiency=1e9)
    work = Work("f", "elementwise", Unit.VECTOR, vector_cycles=1e12, stream_bytes=1.0)
    chip = stream_chip(table)
    assert seconds(work, free, chip) == pytest.approx(1e12 / (64 * chip.cores * chip.clock_hz))


def test_few_rows_take_as_long_as_their_threads_walk():
    """128 threads take eight times the steps of 1,024; a core has 16 such rows in work, of the others two."""
    law = replace(PLAIN, memory_efficiency=1e9, step_cycles=1000.0)
    slow = replace(norm("layer", 100, 8192), access_bytes=8.0, row_threads=128)
    fast = replace(slow, row_threads=1024)
    steps = 1.5 * slow.stream_bytes / 100 / 8  # of a row: read twice, written once
    assert seconds(slow, law) == pytest.approx(steps / 128 * 1000 / A100.clock_hz)
    assert seconds(fast, law) == pytest.approx(steps / 1024 * 1000 / A100.clock_hz)
    in_work = replace(norm("layer", 16 * 108, 512), access_bytes=8.0, row_threads=128)
    more = replace(norm("layer", 16 * 108 + 1, 512), access_bytes=8.0, row_threads=128)
    assert seconds(more, law) == pytest.approx(2 * seconds(in_work, law), rel=1e-2)


def test_arithmetic_takes_over_from_memory():
    law = replace(PLAIN, alu_efficiency=0.5)
    work = Work("power", "elementwise", Unit.VECTOR, vector_cycles=1e12, stream_bytes=1.0)
    assert seconds(work, law) == pytest.approx(1e12 / (0.5 * 108 * 64 * 1.41e9))


def test_an_epilogue_adds_what_it_moves_beside_the_product():
    alone = product(1, 4096, 4096, 4096)
    ridden = replace(alone, unit=Unit.TENSOR_VECTOR, stream_bytes=2.0 * 4096**2, vector_cycles=4096.0**2)
    assert (shape_of(alone), shape_of(ridden)) == (Shape.PRODUCT, Shape.EPILOGUE)
    bare, fused = kernels_s([alone, ridden], TABLE, Fidelity.CALIBRATED)[0]
    extra = 2.0 * 4096**2 / (LAW.memory_efficiency * A100.memory_bytes_per_s)
    assert fused - bare == pytest.approx(extra)


@pytest.mark.parametrize("rung", [Fidelity.ANALYTIC, Fidelity.CALIBRATED])
@pytest.mark.parametrize("chip", ["a100", "mi210", "h100", "l4", "tpuv4", "phaze-reference"])
def test_all_vector_work_of_a_training_step_has_a_time(chip, rung):
    chain = load_workload("gpt3-small").chain(4, 1)
    passes = [p for layer in chain.layers for p in (layer.forward, layer.backward) if p is not None]
    works = [w for p in passes for w in p.works if w.unit is Unit.VECTOR]
    times = kernels_s(works, to_table([load_architecture(chip)]), rung)
    assert np.all(np.isfinite(times) & (times > 0))
