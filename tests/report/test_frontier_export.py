from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.explore.metrics import METRICS, metric
from phaze.report.frontier import pareto, to_csv, to_json
from phaze.report.svg import draw

SVG = "{http://www.w3.org/2000/svg}"
TDP, THROUGHPUT, AREA = metric("tdp"), metric("throughput"), metric("area")
small = st.integers(1, 6).map(float)
rows_strategy = st.lists(st.tuples(small, small, small), min_size=1, max_size=12).map(
    lambda points: [
        {"id": f"d{i}", "tdp_w": a, "throughput_samples_per_s": b, "area_mm2": c}
        for i, (a, b, c) in enumerate(points)
    ]
)


def dominated(row, rows, x, y) -> bool:
    """The definition, written out: at least as good on both, better on one."""

    def better_or_equal(m, one, other):
        a, b = m.value(one), m.value(other)
        return a >= b if m.maximise else a <= b

    return any(
        better_or_equal(x, other, row)
        and better_or_equal(y, other, row)
        and (x.value(other), y.value(other)) != (x.value(row), y.value(row))
        for other in rows
    )


@given(
    rows_strategy,
    st.sampled_from([(TDP, THROUGHPUT), (AREA, TDP), (THROUGHPUT, metric("throughput_per_tdp"))]),
)
def test_pareto_is_what_its_definition_says(rows, axes):
    x, y = axes
    kept = pareto(rows, x, y)
    values = {(x.value(row), y.value(row)) for row in rows if not dominated(row, rows, x, y)}
    assert {(x.value(row), y.value(row)) for row in kept} == values
    assert len(kept) == len(values)
    assert [x.value(row) for row in kept] == sorted(x.value(row) for row in kept)


ROWS = [
    {"id": "a<b>&", "tdp_w": 100.0, "throughput_samples_per_s": 10.0, "hbm_generation": "HBM3, fast"},
    {"id": "c", "tdp_w": 200.0, "throughput_samples_per_s": 18.0, "hbm_generation": "HBM3"},
]


def test_csv_reads_back():
    back = list(csv.DictReader(io.StringIO(to_csv(ROWS))))
    assert [row["id"] for row in back] == ["a<b>&", "c"]
    assert float(back[1]["throughput_samples_per_s"]) == 18.0
    assert back[0]["hbm_generation"] == "HBM3, fast"


def test_json_names_axes_and_directions():
    document = json.loads(to_json(ROWS, TDP, metric("throughput_per_tdp")))
    assert document["x"] == {"name": "tdp", "column": "tdp_w", "unit": "W", "maximise": False}
    assert document["points"][1]["throughput_samples_per_s_per_w"] == pytest.approx(0.09)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]])
def test_svg_is_well_formed_escaped_and_inside_the_picture(rows):
    root = ElementTree.fromstring(draw(rows, TDP, THROUGHPUT, "<run> & co"))
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
    a, b = ElementTree.fromstring(draw(ROWS, TDP, THROUGHPUT, "t")).iter(f"{SVG}circle")
    assert float(a.get("cx")) < float(b.get("cx"))
    assert float(a.get("cy")) > float(b.get("cy"))


def test_svg_draws_steps_because_nothing_lies_between_two_designs():
    root = ElementTree.fromstring(draw(ROWS, TDP, THROUGHPUT, "t"))
    a, corner, b = (p.split(",") for p in root.find(f"{SVG}polyline").get("points").split())
    assert corner == [b[0], a[1]]  # until the power of the next design the throughput of the last one
    root = ElementTree.fromstring(draw(ROWS, THROUGHPUT, TDP, "t"))
    a, corner, b = (p.split(",") for p in root.find(f"{SVG}polyline").get("points").split())
    assert corner == [a[0], b[1]]  # more throughput than the last design costs the power of the next one


def test_unknown_metric_lists_the_known_ones():
    with pytest.raises(InputError, match="throughput_per_tdp"):
        metric("speed")
    assert all(name == m.name for name, m in METRICS.items())
