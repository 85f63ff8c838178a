from __future__ import annotations

import csv
import io
import json
import sys
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.csv_file import rows_to_csv
from phaze.errors import InputError
from phaze.explore.request.design_metrics import METRICS, metric
from phaze.report.charts.frontier_export import frontier, frontier_page, pareto, to_json, to_parquet
from phaze.report.charts.svg_charts import draw_frontier
from phaze.runs.design_table import DESIGNS_SCHEMA

SVG = "{http://www.w3.org/2000/svg}"
TDP, THROUGHPUT, AREA = metric("tdp"), metric("throughput"), metric("area")
small = st.integers(1, 6).map(float)
rows_strategy = st.lists(st.tuples(small, small, small), min_size=1, max_size=12).map(
    lambda points: [
        {"id": f"d{i}", "tdp_w": a, "throughput_samples_per_s": b, "area_mm2": c}
        for i, (a, b, c) in enumerate(points)
    ]
)


def dominated(row, rows, axes) -> bool:
    """The definition, written out: at least as good on all, better on one."""

    def better_or_equal(m, one, other):
        a, b = m.value(one), m.value(other)
        return a >= b if m.maximise else a <= b

    return any(
        all(better_or_equal(m, other, row) for m in axes)
        and any(m.value(other) != m.value(row) for m in axes)
        for other in rows
    )


@given(
    rows_strategy,
    st.sampled_from(
        [
            (TDP, THROUGHPUT),
            (AREA, TDP),
            (THROUGHPUT, metric("throughput_per_tdp")),
            (TDP, THROUGHPUT, AREA),
            (AREA, TDP, THROUGHPUT, metric("throughput_per_tdp")),
        ]
    ),
)
def test_pareto_is_what_its_definition_says(rows, axes):
    kept = pareto(rows, *axes)

    def values(row):
        return tuple(axis.value(row) for axis in axes)

    expected = {values(row) for row in rows if not dominated(row, rows, axes)}
    assert {values(row) for row in kept} == expected
    assert len(kept) == len(expected)
    assert [axes[0].value(row) for row in kept] == sorted(axes[0].value(row) for row in kept)
    for row in kept:
        assert row["id"] == min(other["id"] for other in rows if values(other) == values(row))


ROWS = [
    {"id": "a<b>&", "tdp_w": 100.0, "throughput_samples_per_s": 10.0, "hbm_generation": "HBM3, fast"},
    {"id": "c", "tdp_w": 200.0, "throughput_samples_per_s": 18.0, "hbm_generation": "HBM3"},
]


def test_csv_reads_back():
    back = list(csv.DictReader(io.StringIO(rows_to_csv(ROWS))))
    assert [row["id"] for row in back] == ["a<b>&", "c"]
    assert float(back[1]["throughput_samples_per_s"]) == 18.0
    assert back[0]["hbm_generation"] == "HBM3, fast"


def test_parquet_reads_back_and_tells_units():
    table = pa_parquet.read_table(pa.BufferReader(to_parquet(ROWS)))
    assert table.to_pylist() == ROWS
    assert table.schema.metadata[b"schema"].decode() == DESIGNS_SCHEMA
    assert table.schema.field("tdp_w").metadata[b"unit"] == b"W"
    assert all(field.metadata[b"description"] for field in table.schema)


def test_parquet_without_its_package_says_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install '\.\[parquet\]'"):
        to_parquet(ROWS)


def test_json_names_axes_and_directions():
    document = json.loads(to_json(frontier(ROWS, [TDP, metric("throughput_per_tdp")])))
    assert document["x"] == {"name": "tdp", "column": "tdp_w", "unit": "W", "maximise": False}
    assert document["axes"] == [document["x"], document["y"]]
    assert document["points"][0]["throughput_samples_per_s_per_w"] == pytest.approx(0.1)
    assert len(document["points"]) == 1  # the other design draws more power and does less with it
    assert document["knee"] is None


MORE = [
    *ROWS,
    {"id": "d", "tdp_w": 120.0, "throughput_samples_per_s": 17.0, "hbm_generation": "HBM3"},
    {"id": "e", "tdp_w": 300.0, "throughput_samples_per_s": 5.0, "hbm_generation": "HBM3"},
]


def test_hypervolume_and_knee_by_hand():
    found = frontier(MORE, [TDP, THROUGHPUT])
    assert found.reference == (300.0, 5.0)  # the worst of each among all designs
    assert found.hypervolume == (120 - 100) * (10 - 5) + (200 - 120) * (17 - 5) + (300 - 200) * (18 - 5)
    assert found.knee == "d"
    assert frontier(MORE, [TDP, THROUGHPUT], [200.0, 0.0]).hypervolume == 20 * 10 + 80 * 17
    with pytest.raises(InputError, match="3 values for 2 axes"):
        frontier(MORE, [TDP, THROUGHPUT], [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="empty"):
        frontier([], [TDP, THROUGHPUT])


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_page_holds_everything_escaped(count):
    axes = [TDP, THROUGHPUT, metric("throughput_per_tdp"), AREA][:count]
    rows = [{**row, "area_mm2": 500.0 + i} for i, row in enumerate(MORE)]
    text = frontier_page(frontier(rows, axes), rows, "<run> & co")
    assert "<run>" not in text
    assert "a<b>" not in text
    assert "knee: d" in text
    assert "power of one accelerator (W)" in text
    assert 'src="http' not in text
    assert text == frontier_page(frontier(rows, axes), rows, "<run> & co")


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]])
def test_svg_is_well_formed_escaped_and_inside_the_picture(rows):
    root = ElementTree.fromstring(draw_frontier(rows, TDP, THROUGHPUT, "<run> & co"))
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert "<run> & co" in texts
    assert "power of one accelerator (W)" in texts
    assert "throughput (samples/s)" in texts
    circles = list(root.iter(f"{SVG}circle"))
    assert len(circles) == len(rows)
    for circle in circles:
        assert 90 <= float(circle.get("cx")) <= 696
        assert 48 <= float(circle.get("cy")) <= 416
    assert circles[0].find(f"{SVG}title").text.startswith("a<b>&: 100 W, 10.0 samples/s")


def test_svg_draws_more_power_further_right_and_more_throughput_higher():
    a, b = ElementTree.fromstring(draw_frontier(ROWS, TDP, THROUGHPUT, "t")).iter(f"{SVG}circle")
    assert float(a.get("cx")) < float(b.get("cx"))
    assert float(a.get("cy")) > float(b.get("cy"))


def test_svg_draws_steps_because_nothing_lies_between_two_designs():
    root = ElementTree.fromstring(draw_frontier(ROWS, TDP, THROUGHPUT, "t"))
    a, corner, b = (p.split(",") for p in root.find(f"{SVG}polyline").get("points").split())
    assert corner == [b[0], a[1]]  # until the power of the next design the throughput of the last one
    root = ElementTree.fromstring(draw_frontier(ROWS, THROUGHPUT, TDP, "t"))
    a, corner, b = (p.split(",") for p in root.find(f"{SVG}polyline").get("points").split())
    assert corner == [a[0], b[1]]  # more throughput than the last design costs the power of the next one


def test_svg_names_the_knee():
    root = ElementTree.fromstring(draw_frontier(MORE, TDP, THROUGHPUT, "t", "d"))
    (knee,) = (c for c in root.iter(f"{SVG}circle") if c.get("class") == "dot knee")
    assert knee.find(f"{SVG}title").text.startswith("d: 120 W")
    assert "knee: d" in [node.text for node in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", ["short", "tc8x256x128-vc3x1024-gb16MiB-hbm2ex4-clock=1.05GHz", "x" * 120])
@pytest.mark.parametrize("at", [0.0, 0.4, 0.6, 1.0])
def test_svg_keeps_the_name_of_the_knee_inside_the_picture(name, at):
    ends = [{"id": "a", "tdp_w": 100.0, "throughput_samples_per_s": 1.0}]
    ends += [{"id": "z", "tdp_w": 500.0, "throughput_samples_per_s": 30.0}]
    knee = {"id": name, "tdp_w": 100.0 + 400.0 * at, "throughput_samples_per_s": 20.0}
    root = ElementTree.fromstring(draw_frontier([*ends, knee], TDP, THROUGHPUT, "t" * 90, name))
    texts = {node.text: node for node in root.iter(f"{SVG}text")}
    for text, font in ((f"knee: {name}", 13.0), ("t" * 90, 16.0)):
        node = texts[text]
        size = float(node.get("style", f"font-size:{font}px").removeprefix("font-size:").removesuffix("px"))
        start = float(node.get("x"))
        length = 0.6 * size * len(text) * (-1 if node.get("text-anchor") == "end" else 1)
        assert 0 <= start <= 720
        assert 0 <= start + length <= 720.5


def test_a_design_without_a_figure_is_named():
    with pytest.raises(InputError, match="design q has no memory_bytes"):
        metric("memory").value({"id": "q", "memory_bytes": None})
    with pytest.raises(InputError, match="no column 'memory_bytes', needed for memory"):
        metric("memory").value({"id": "q"})


def test_unknown_metric_lists_the_known_ones():
    with pytest.raises(InputError, match="throughput_per_tdp"):
        metric("speed")
    assert all(name == m.name for name, m in METRICS.items())
