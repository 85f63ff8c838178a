"""`dse validate --out`: the page and its pictures."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from typer.testing import CliRunner

from phaze.cli.main import app
from phaze.report.charts.svg_charts import MOST_SCATTERED, draw_scatter
from phaze.validation.data_set_registry import DATA_SETS
from phaze.validation.validation_document import peers

SVG = "{http://www.w3.org/2000/svg}"
SCALESIM = (
    "M,N,K,array_rows,array_cols,dataflow,compute_cycles\n"
    "50,200,100,32,16,ws,6656\n50,200,100,32,16,os,3796\n"
)


def dots(drawing):
    return [(float(c.get("cx")), float(c.get("cy"))) for c in ET.fromstring(drawing).iter(f"{SVG}circle")]


def test_right_predictions_lie_on_the_diagonal():
    drawing = draw_scatter(np.array([1.0, 10.0, 100.0]), np.array([1.0, 10.0, 100.0]), "a < b", "s")
    line = next(e for e in ET.fromstring(drawing).iter(f"{SVG}line") if e.get("class") == "same")
    x1, y1, x2, y2 = (float(line.get(k)) for k in ("x1", "y1", "x2", "y2"))
    for x, y in dots(drawing):
        assert (y - y1) * (x2 - x1) == pytest.approx((y2 - y1) * (x - x1), abs=1e-6)


@pytest.mark.parametrize("count", [1, 2, MOST_SCATTERED + 700])
def test_few_and_many_points(count):
    values = np.full(count, 3e-6)
    assert len(dots(draw_scatter(values, 2 * values, "t", "s"))) == min(count, MOST_SCATTERED)


def test_page_has_a_row_and_a_picture_per_comparison(tmp_path):
    data, out = tmp_path / "data", tmp_path / "out" / "docs"
    data.mkdir()
    (data / "systolic_scalesim_compute_cycles.csv").write_text(SCALESIM)
    result = CliRunner().invoke(app, ["validate", "--data", str(data), "--out", str(out), "-q"])
    assert result.exit_code == 0
    page = (out / "validation.md").read_text()
    assert "| systolic_scalesim_compute_cycles | 2 of 2 |" in page
    assert "](validation/systolic_scalesim_compute_cycles.svg)" in page
    assert len(dots((out / "validation" / "systolic_scalesim_compute_cycles.svg").read_text())) == 2


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "systolic_scalesim_compute_cycles.csv").write_text(SCALESIM)
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "x"
    result = CliRunner().invoke(app, ["validate", "--data", str(tmp_path), "--out", str(out), "-q"])
    assert result.exit_code != 0
    assert "cannot make folder" in str(result.exception)


def test_peers_stand_beside_known_sets_or_those_still_to_come():
    known = {s.name for s in DATA_SETS}
    assert all(name in known or name.startswith("e2e_") for name in peers())
    assert all(p.published is not None or p.held_out is not None for some in peers().values() for p in some)
