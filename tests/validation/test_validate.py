"""`dse validate`: folders, sets, exit codes, and the shipped thresholds on the measurements."""

import csv
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phaze.cli.main import app
from phaze.cost.rung import Rung
from phaze.errors import InputError
from phaze.validation.columns import read_columns
from phaze.validation.registry import DATA_SETS
from phaze.validation.thresholds import thresholds
from phaze.validation.validate import validate

SCALESIM = "M,N,K,array_rows,array_cols,dataflow,compute_cycles\n"
# ceil(100/32) ceil(200/16) (2 x 32 + 16 + 50 - 2), and the output-stationary form of the same product
ROWS = "50,200,100,32,16,ws,6656\n50,200,100,32,16,os,3796\n"
DATA = os.environ.get("DSE_DATA")
PASSES = {"op_conv_deepbench": 3}  # times in a row that one comparison judges


def folder(tmp_path: Path, rows: str = ROWS) -> Path:
    (tmp_path / "systolic_scalesim_compute_cycles.csv").write_text(SCALESIM + rows)
    return tmp_path


def test_closed_forms_by_hand(tmp_path):
    (only,) = validate(folder(tmp_path)).sets
    assert (only.rows, only.excluded, only.mape_pct) == (2, 0, 0)
    assert only.roofline_mape_pct == pytest.approx(100 * (2 - 1953.125 / 6656 - 1953.125 / 3796) / 2)


def test_roofline_rung_is_its_own_yardstick(tmp_path):
    (only,) = validate(folder(tmp_path), rung=Rung.ROOFLINE).sets
    assert only.mape_pct == only.roofline_mape_pct
    assert only.bias_pct < 0


def test_exit_code_5_above_a_threshold(tmp_path):
    bad = folder(tmp_path, ROWS + "50,200,100,32,16,is,1\n")
    result = CliRunner().invoke(app, ["validate", "--data", str(bad), "--json", "-q"])
    assert result.exit_code == 5
    assert json.loads(result.stdout)["sets"][0]["threshold_pct"] == 0


def test_files_nobody_compares_are_named(tmp_path):
    (tmp_path / "op_new_measurement.csv").write_text("a\n1\n")
    result = CliRunner().invoke(app, ["validate", "--data", str(folder(tmp_path)), "-q"])
    assert result.exit_code == 0
    assert "Not compared yet: op_new_measurement" in result.stdout


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("50,200,x,32,16,ws,1\n", "line 2: K is 'x', not a number"),
        ("50,200\n", "line 2: 2 cells under 7 columns"),
    ],
)
def test_bad_cells_are_one_clear_line(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        validate(folder(tmp_path, rows))


def test_missing_column_is_named(tmp_path):
    (tmp_path / "systolic_scalesim_compute_cycles.csv").write_text("M,N\n1,2\n")
    with pytest.raises(InputError, match="no column 'K'"):
        validate(tmp_path)


def test_unknown_set_and_empty_folder(tmp_path):
    with pytest.raises(InputError, match="no data set here"):
        validate(tmp_path)
    with pytest.raises(InputError, match="nearest: systolic_scalesim_compute_cycles"):
        validate(folder(tmp_path), ["systolic_scalesim"])


def test_thresholds_name_known_comparisons():
    known = {(s.name, s.metric) for s in DATA_SETS}
    assert {(name, metric) for name, metrics in thresholds().items() for metric in metrics} <= known


@pytest.mark.soak
@pytest.mark.skipif(DATA is None, reason="DSE_DATA names no measurements")
def test_the_model_keeps_its_thresholds_and_counts_every_row():
    data = Path(DATA or "") / "validation"
    report = validate(data)
    assert report.passed, [c for c in report.sets if not c.passed]
    for comparison in report.sets:
        with (data / f"{comparison.name}.csv").open(encoding="utf-8", newline="") as file:
            times = PASSES.get(comparison.name, 1) * (sum(1 for _ in csv.reader(file)) - 1)
        assert comparison.rows + comparison.excluded == times
        assert comparison.excluded == sum(comparison.excluded_reasons.values())
    assert read_columns(data / "chip_specs.csv").rows > 0
