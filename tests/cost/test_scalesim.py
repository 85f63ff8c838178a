"""SCALE-Sim's cycles, stalled or not, against runs of the tool and a word-by-word model of its buffers."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalesim_by_words import run_by_words

from phaze.cost.core_cycles import fill_cycles, gemm_cycles
from phaze.validation.scalesim.scalesim_cycles import Dataflow, scalesim_cycles
from phaze.validation.scalesim.scalesim_stalls import Interfaces, stalled_run
from phaze.workload.work import Gemm

flows = st.sampled_from(Dataflow)
sides = st.integers(1, 40)


def product(m, k, n, groups=1):
    return Gemm(groups, m, k, n, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "columns", "flow", "kib", "rate", "stall", "whole", "reads", "written"),
    [
        (1, 290, 47, 32, 32, "is", 1, 1, 26084, 27582, (512, 27136), 580),
        (613, 48, 41, 32, 32, "ws", 2, 10, 7816, 10872, (100940, 2060), 58939),
        (2, 349, 194, 128, 256, "os", 2, 100, 750, 1918, (1100, 145200), 698),
        (117, 429, 3, 8, 8, "is", 2, 3, 16761, 24184, (360, 70794), 50200),
        (399, 544, 2, 7, 13, "os", 64, 3, 7681, 73662, (798, 1092), 217060),
        (412, 87, 19, 100, 36, "is", 4, 10, 1775, 6143, (47150, 2050), 35919),
        (125, 1, 48, 7, 13, "is", 1, 40, 470, 2311, (84760, 80), 875),
        (177, 129, 3, 16, 128, "ws", 5, 10, 1363, 2524, (2560, 770), 22848),
        (562, 1, 265, 256, 16, "os", 4, 100, 3460, 5090, (457800, 2100), 562),
        (31, 83, 366, 64, 16, "os", 1, 3, 37854, 40842, (67716, 121068), 2573),
        (2, 135, 20, 128, 256, "is", 1, 7, 112, 868, (518, 3108), 270),
        (1, 218, 16, 100, 36, "ws", 1, 10, 1904, 3621, (100, 31720), 218),
        (104, 4, 442, 32, 32, "is", 16, 7, 86404, 93893, (647563, 1792), 5824),
    ],
)
def test_runs_of_the_tool(m, n, k, rows, columns, flow, kib, rate, stall, whole, reads, written):
    """SCALE-Sim v3.0.0 with user-defined bandwidth."""
    run = stalled_run(Dataflow(flow), product(m, k, n), rows, columns, Interfaces(1024 * kib, rate))
    assert run.stall_cycles == stall
    assert run.cycles == scalesim_cycles(Dataflow(flow), product(m, k, n), rows, columns) - 1 + stall
    assert (run.whole_cycles, run.written_words) == (whole, written)
    assert (run.read_words[::-1] if flow == "is" else run.read_words) == reads


@settings(max_examples=60, deadline=None)
@given(
    flows,
    sides,
    sides,
    sides,
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(100, 900),
    st.integers(1, 12),
)
def test_stalls_are_those_of_a_word_by_word_run(flow, m, k, n, rows, columns, size, rate):
    run = stalled_run(flow, product(m, k, n), rows, columns, Interfaces(size, rate))
    assert (run.cycles, run.stall_cycles) == run_by_words(flow.value, (m, k, n), (rows, columns), size, rate)


@given(flows, sides, sides, sides, st.integers(1, 40), st.integers(1, 40))
def test_nothing_stalls_where_everything_fits(flow, m, k, n, rows, columns):
    run = stalled_run(flow, product(m, k, n), rows, columns, Interfaces(1 << 20, 1))
    assert run.stall_cycles == 0


@settings(max_examples=30, deadline=None)
@given(flows, sides, sides, sides, st.integers(100, 2000))
def test_traffic_covers_the_operands_and_is_whole_lines(flow, m, k, n, size):
    run = stalled_run(flow, product(m, k, n), 8, 4, Interfaces(size, 3))
    assert all(words % 3 == 0 for words in run.read_words)
    assert run.written_words >= m * n


def rows_of(name):
    folder = os.environ.get("DSE_DATA")
    paths = sorted(Path(folder).rglob(name)) if folder else []
    if not paths:
        pytest.skip(f"no {name} in DSE_DATA")
    with paths[0].open() as file:
        return list(csv.DictReader(file))


def case(row):
    gemm = product(int(row["M"]), int(row["K"]), int(row["N"]))
    return Dataflow(row["dataflow"]), gemm, int(row["array_rows"]), int(row["array_cols"])


@pytest.mark.data
def test_all_rows_without_stalls_exactly():
    table = rows_of("systolic_scalesim_compute_cycles.csv")
    assert len(table) > 1000
    for row in table:
        assert scalesim_cycles(*case(row)) == int(row["compute_cycles"])


@pytest.mark.data
def test_all_rows_with_stalls_to_the_digits_given():
    for row in rows_of("systolic_scalesim_stalls.csv"):
        rate = int(row["dram_bw_words_per_cycle"])
        run = stalled_run(*case(row), Interfaces(1024 * int(row["sram_kb_each"]), rate))
        found = (run.cycles, run.whole_cycles, run.written_words, *sorted(run.read_words))
        names = ("tool_total_cycles", "total_cycles_incl_prefetch", "ofmap_dram_writes")
        reads = sorted(int(row[f"{operand}_dram_reads"]) for operand in ("ifmap", "filter"))
        assert found == pytest.approx((*(int(row[name]) for name in names), *reads), rel=6e-6)


@pytest.mark.data
def test_overlapped_weights_never_lose_to_scalesim_weight_stationary():
    for row in rows_of("systolic_scalesim_compute_cycles.csv"):
        _, gemm, rows, columns = case(row)
        if gemm.m >= rows:  # shorter streams wait for the weights of a next tile that may not exist
            ours = gemm_cycles(gemm, rows, columns)[0] + fill_cycles(rows, columns)
            assert ours <= scalesim_cycles(Dataflow.WEIGHT_STATIONARY, gemm, rows, columns)


@given(sides, sides, sides, st.sampled_from([(8, 8), (16, 128), (100, 36)]))
def test_a_single_long_stream_agrees_with_scalesim(m, k, n, array):
    rows, columns = array
    one_tile = product(max(m, rows, columns), min(k, rows), min(n, columns))
    closed = scalesim_cycles(Dataflow.WEIGHT_STATIONARY, one_tile, rows, columns)
    assert gemm_cycles(one_tile, rows, columns)[0] + fill_cycles(rows, columns) <= closed
