"""`dse measure gpu`: what samples come to, tables that other commands read, and those that phaze ships."""

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import phaze
from phaze.cost.fidelity import Fidelity
from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture
from phaze.parallel.framework import load_framework
from phaze.validation.data_set_registry import DATA_SETS, OWN_SETS, SECONDS
from phaze.validation.fits.kernel_calibration import rows_of
from phaze.validation.fits.kernels_left_out import kernels_left_out
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.measured.own_measurements import own_products
from phaze.validation.measured.own_serving import own_served
from phaze.validation.model_validation import compare, thresholds, validate
from phaze.validation.own import gpu_script, own_tables
from phaze.validation.own.gpu_script import (
    CACHE_BYTES,
    COLUMNS,
    PARTS,
    SETTLING_S,
    TOLD,
    Machine,
    Reading,
    Sample,
    cases,
    cell,
    measure,
    meter_of,
    sets_of,
    settled_spans,
)
from phaze.validation.sets.kernels import gpu_kernels

SCRIPT = Path(gpu_script.__file__)


def samples(watts, every_s=0.02, counter_s=0.1, until_s=2.0):
    """A board that draws `watts(t)`, whose energy counter moves in steps."""
    times = np.arange(0, until_s, every_s)
    joules = np.cumsum([watts(t) * every_s for t in times])
    seen = [joules[int(t / counter_s) * round(counter_s / every_s)] for t in times]
    return [Sample(t, watts(t), 1500.0, 50.0 + t, j, 1.0) for t, j in zip(times, seen, strict=True)]


def test_watts_are_the_rise_of_the_counter_over_the_settled_part():
    read = Reading.of(samples(lambda t: 200.0 if t < 0.3 else 600.0), 0.0, 2.0)
    assert read.power_w == pytest.approx(600, rel=0.02)
    assert read.sm_clock_mhz == 1500
    assert read.temperature_c == pytest.approx(52, abs=0.1)
    assert read.capped == 1


def test_without_a_counter_the_last_reading_counts_and_without_samples_nothing_is_told():
    plain = [replace(one, energy_j=math.nan) for one in samples(lambda t: 100 * t)]
    read = Reading.of(plain, 0.0, 1.0)
    assert read.power_w == read.reading_w == pytest.approx(100, rel=0.03)
    assert math.isnan(Reading.of([], 0.0, 1.0).power_w)
    assert Reading.of(plain, 0.0, 0.1).reading_w == pytest.approx(
        10, rel=0.3
    )  # shorter than it takes to settle


def test_seconds_count_after_settling():
    spans = [0.1] * 10 + [0.2] * 5
    kept = list(settled_spans(spans))
    assert sum(spans) - sum(kept) == pytest.approx(SETTLING_S)
    assert list(settled_spans([0.1, 0.3])) == [0.3]


def test_operands_in_turn_fill_more_than_a_cache():
    assert sets_of(2 * CACHE_BYTES) == 1
    assert sets_of(CACHE_BYTES / 7.5) == 8
    assert sets_of(1.0) == gpu_script.MOST_SETS


def test_a_board_that_nobody_can_ask_tells_nothing():
    assert math.isnan(meter_of(None).limit_w())
    assert math.isnan(meter_of(None).sample().power_w)
    assert cell(math.nan) == ""
    assert cell(1 / 3) == "0.3333333"


def test_cases_name_the_columns_of_their_tables():
    seen = set()
    for name, row, _ in cases(Machine(None, "cuda", 1.0), PARTS, small=False):
        seen.add(name)
        assert set(row) <= set(COLUMNS[name])
    assert seen == set(COLUMNS)
    assert set(TOLD) <= {column for columns in COLUMNS.values() for column in columns}


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """Tables of small cases that this processor ran under the name of a chip."""
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("gpu")
    told = []
    measure(Machine(torch, "cpu", 0.01), folder, PARTS, 5.0, told.append)
    for path in folder.glob("*.csv"):
        path.write_text(path.read_text().replace("\ncpu,", "\nNVIDIA H100 80GB HBM3,"))
    assert len(told) == sum(1 for _ in cases(Machine(None, "cpu", 0.0), PARTS, small=True))
    return folder


def test_a_rehearsal_writes_tables_that_other_commands_read(rehearsed):
    assert {path.stem for path in rehearsed.glob("*.csv")} == set(COLUMNS)
    assert len(own_products(rehearsed / "gpu_products.csv", load_architecture("h100"))) == 2
    assert [row.concurrency for row in own_served(rehearsed / "gpu_decode.csv")] == [1, 2]
    for name, schema in TABLES.items():
        if name.startswith(OWN_SETS):
            columns = read_columns(rehearsed / f"{name}.csv", schema)
            assert columns.rows
            assert not columns.bad


def test_boards_that_tell_no_watts_are_judged_by_time_alone(rehearsed):
    told = {(one.name, one.metric.value): one for one in validate(rehearsed, ["gpu_products"]).sets}
    assert told["gpu_products", "latency"].rows == 2
    assert told["gpu_products", "power"].excluded_reasons == {"a board that tells no watts": 2}


def test_the_script_runs_alone_and_says_what_is_missing(tmp_path, dse):
    script = tmp_path / "gpu.py"
    assert dse("measure", "gpu", "--script", script)[0] == 0
    assert script.read_text() == SCRIPT.read_text()
    assert "phaze" not in "".join(line for line in SCRIPT.read_text().splitlines() if "import" in line)
    (tmp_path / "torch.py").write_text("raise ImportError\n")  # a machine without PyTorch
    command = [sys.executable, "-E", "-S", str(script), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"{gpu_script.NO_TORCH}\n")
    assert not (tmp_path / "out").exists()


def test_without_a_gpu_the_command_says_so(tmp_path, dse):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match="no NVIDIA GPU here"):
        phaze.measure_gpu(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="'step' is not known"):
        phaze.measure_gpu(tmp_path, parts="step")
    code, _, errors = dse("measure", "gpu")
    assert code == 2
    assert "--out DIR, or --script FILE" in errors


def test_the_tables_of_phaze_are_judged_row_by_row_without_a_folder(dse, monkeypatch):
    monkeypatch.delenv("DSE_DATA", raising=False)
    code, out, _ = dse("validate", "--json")
    report = json.loads(out)
    assert code == 0
    told = {(one["name"], one["metric"]) for one in report["sets"]}
    assert told == {(s.name, s.metric.value) for s in DATA_SETS if s.name.startswith(OWN_SETS)}
    for one in report["sets"]:
        with own_tables()[one["name"]].open(newline="") as file:
            lines = sum(not row[0].startswith("#") for row in csv.reader(file)) - 1
        assert one["rows"] + one["excluded"] == lines
        assert one["threshold_pct"] is not None
    assert set(own_tables()) <= set(thresholds())


def test_no_constant_is_fitted_to_the_tables_of_phaze():
    compared = compare(None, ["gpu_products", "gpu_kernels"])
    assert not dict(kernels_left_out(compared, lambda _: None))


def test_a_folder_is_calibrated_on_seconds_alone(tmp_path):
    for name in ("gpu_products", "gpu_attention"):
        (tmp_path / f"{name}.csv").write_text(own_tables()[name].read_text())
    rows = rows_of(tmp_path, load_architecture("h100"))
    timed = [one for one in compare(tmp_path) if one.comparisons[Fidelity.ANALYTIC].metric in SECONDS]
    assert len(rows) == 60 + 6 + 22
    assert sum(len(one.judged.measured) for one in timed) == len(rows) + 19 + 10  # those of another chip


def test_attention_of_an_older_library_takes_longer_on_newer_chips_alone(tmp_path):
    """FlashAttention-2 is what the laws know on an A100; from Hopper on it is longer, by what PyTorch has."""
    path, sizes = tmp_path / "gpu_attention.csv", "1,2048,2048,32,32,128,1,700,400,400,600,600,1500,60,1,2"
    kinds = [
        (device, op, backend)
        for device in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")
        for op in ("forward", "backward")
        for backend in ("flash", "cudnn")
    ]
    header = ",".join(("device", "op", "backend", *COLUMNS["gpu_attention"][3:]))
    path.write_text("\n".join([header, *(f"{','.join(kind)},{sizes}" for kind in kinds)]) + "\n")
    longer = load_framework("pytorch-2026").attention_stretch
    for judge in (gpu_kernels.attention_forward, gpu_kernels.attention_backward):
        judged = judge(read_columns(path, TABLES["gpu_attention"]))
        for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED):
            newer, other, older, same = judged.predicted[rung]
            assert newer == pytest.approx(longer * other)
            assert older == same
