"""`dse validate`: folders, sets, exit codes, and the shipped thresholds on the measurements."""

import csv
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phaze.cli.main import app
from phaze.cost.fidelity import Fidelity
from phaze.errors import InputError
from phaze.validation.data_set_registry import DATA_SETS
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.model_validation import thresholds, validate

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
    (only,) = validate(folder(tmp_path), rung=Fidelity.ROOFLINE).sets
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
        ("50,200,x,32,16,ws,1\n", "line 2: K is 'x', not a whole number from 1"),
        ("50,200\n", "line 2: 2 cells under 7 columns"),
    ],
)
def test_bad_cells_are_one_clear_line(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        validate(folder(tmp_path, rows))


def test_bad_rows_are_named_and_the_others_judged(tmp_path):
    bad = (
        "50,200,,32,16,ws,1\n50,200,1e999,32,16,ws,1\n50,200,100,32,16,xs,1\n50,200\n50,200,100,32,16,ws,0\n"
    )
    report = validate(folder(tmp_path, ROWS + bad))
    (only,) = report.sets
    assert (only.rows, only.excluded, only.mape_pct) == (2, 5, 0)
    assert list(only.excluded_reasons) == [
        "line 4: K is '', not a whole number from 1 to 4294967296",
        "line 5: K is '1e999', not a whole number from 1 to 4294967296",
        "line 6: dataflow is 'xs', not one of ws, os, is",
        "line 7: 2 cells under 7 columns",
        "line 8: compute_cycles is '0', not a number from 1e-06 to 1e+18",
    ]


def test_rows_whose_cells_do_not_fit_together_are_named(tmp_path):
    head = "device,mode,op,input_shapes,output_shape,fwd_ms_median,bwd_ms_median\n"
    rows = ['A100,train,bmm,"[[8, 16, 32], [8, 32, 4]]","(8, 16, 4)",1,0', 'A100,train,fft,[[8]],"(8,)",1,1']
    (tmp_path / "op_in_model_neusight_fp32.csv").write_text(head + "\n".join(rows) + "\n")
    forward, backward = validate(tmp_path).sets
    assert forward.rows == 1
    assert forward.excluded_reasons == {"line 3: cannot be judged (KeyError: 'fft')": 1}
    assert (backward.rows, backward.excluded) == (0, 2)


def test_a_file_that_cannot_be_read_is_told_after_the_others(tmp_path):
    (tmp_path / "op_gemm_tpu_v4.csv").write_text("device,m\nTPU v4,1\n")
    (tmp_path / "op_gemm_deepbench.csv").write_bytes(b"\xff\xfe")
    result = CliRunner().invoke(app, ["validate", "--data", str(folder(tmp_path)), "--json", "-q"])
    assert [one["name"] for one in json.loads(result.stdout)["sets"]] == ["systolic_scalesim_compute_cycles"]
    assert isinstance(result.exception, InputError)
    assert "op_gemm_tpu_v4.csv: no column 'dtype'" in str(result.exception)
    assert "op_gemm_deepbench.csv: not a CSV file in UTF-8" in str(result.exception)


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
    for name, schema in TABLES.items():
        if (data / f"{name}.csv").is_file():
            assert not read_columns(data / f"{name}.csv", schema).bad
