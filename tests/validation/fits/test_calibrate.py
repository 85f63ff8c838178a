"""`dse calibrate`: constants from a user's own measurements."""

import csv
import json

import numpy as np
import pytest

from phaze.cost.kernels.fitted_constants import Constants, load_calibration
from phaze.cost.kernels.kernel_laws import alone_s
from phaze.cost.kernels.law_fitting import fit_constants
from phaze.cost.kernels.simt_products import SimtLaw
from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture, to_table
from phaze.validation.measured.single_operators import product

pytest.importorskip("scipy")

CHIP = "a100-80gb"
FILE = "products.yaml"
# A machine with slower launches and a worse memory system than those that the family was fitted on.
OWN = {FILE: {"launch_s": 9e-6, "memory_efficiency": 0.5}}
HEADER = ("system", "device", "op", "dtype", "m", "n", "k", "latency_ms", "framework")


def measurements(path, count=60):
    """Products as the law with other constants would have measured them, one in a hundred apart by chance."""
    draw = np.random.default_rng(1)
    sizes = 2 ** draw.integers(3, 13, size=(count, 3))
    works = [product(1, int(m), int(k), int(n)) for m, k, n in sizes]
    seconds = alone_s(works, to_table([load_architecture(CHIP)]), Constants("ampere", OWN))
    with (path / "op_gemm_aiconfigurator.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for (m, k, n), s in zip(sizes, seconds * draw.normal(1, 0.01, count), strict=True):
            writer.writerow(["x", "NVIDIA A100-SXM4-80GB", "gemm", "bfloat16", m, n, k, s * 1e3, "mine"])
    return path


def test_fit_finds_the_constants_that_measurements_tell():
    law = Constants("ampere").law(SimtLaw, FILE)
    works = [product(1, 1, 4096, 2**e) for e in range(8, 17)]  # launches, and streams of weights
    table = to_table([load_architecture(CHIP)])

    def predict(new):
        return alone_s(works, table, Constants("ampere", {FILE: {"launch_s": new.launch_s}}))

    measured = alone_s(works, table, Constants("ampere", {FILE: {"launch_s": 9e-6}}))
    found = fit_constants(law, predict, measured)
    assert found.launch_s == pytest.approx(9e-6, rel=0.02)
    assert found.tiles == law.tiles


def test_calibrated_constants_serve_evaluate(dse, tmp_path):
    out = tmp_path / "mine.yaml"
    data = measurements(tmp_path)
    code, text, err = dse("calibrate", data, "--arch", CHIP, "--out", out, "--json")
    assert code == 0, err
    document = json.loads(text)
    (law,) = document["errors"]
    assert (law["law"], law["rows_fitted"], law["rows_judged"]) == ("products", 48, 12)
    assert law["error_after_pct"] < 5 < law["error_before_pct"]
    assert load_calibration(out).laws[FILE]["launch_s"] == pytest.approx(9e-6, rel=0.2)
    ask = ("evaluate", "--workload", "gpt2-xl", "--devices", 1, "--global-batch", 4, "--json", "--arch")
    plain, mine = (
        json.loads(dse(*ask, CHIP, *more)[1])["best"]["workloads"]["gpt2-xl"]
        for more in (("--rung", "calibrated"), ("--calibration", out))
    )
    assert mine["rung"] == plain["rung"] == "calibrated"
    assert mine["iteration_time_s"] > plain["iteration_time_s"]
    code, _, err = dse(*ask, "h100", "--calibration", out)
    assert (code, "is of a100-80gb and serves chips of the family ampere; h100 is of hopper" in err) == (
        2,
        True,
    )


def own_table(dse, tmp_path, count=60):
    """The template of products, filled in with what the law with other constants would have measured."""
    path = tmp_path / "products.csv"
    assert dse("measure", "template", "gemm", "--out", path)[0] == 0
    kept = [
        line for line in path.read_text().splitlines() if line.startswith("#") or line.startswith("dtype")
    ]
    draw = np.random.default_rng(1)
    sizes = 2 ** draw.integers(3, 13, size=(count, 3))
    works = [product(1, int(m), int(k), int(n)) for m, k, n in sizes]
    seconds = alone_s(works, to_table([load_architecture(CHIP)]), Constants("ampere", OWN))
    rows = [f"bf16,1,{m},{n},{k},{s * 1e6}" for (m, k, n), s in zip(sizes, seconds, strict=True)]
    path.write_text("\n".join([*kept, *rows]) + "\n")
    return path


SPACE = """schema_version: 1
name: variants
base: a100-80gb
axes:
  - {fields: [hbm_stacks], values: [3, 5]}
"""


def test_a_filled_template_steers_search_plan_and_comparison(dse, tmp_path):
    """What was measured on a machine with slow launches counts in all that asks about chips of its family."""
    out, space = tmp_path / "mine.yaml", tmp_path / "variants.yaml"
    code, _, err = dse("calibrate", own_table(dse, tmp_path), "--arch", CHIP, "--out", out, "--json")
    assert code == 0, err
    assert load_calibration(out).laws[FILE]["launch_s"] == pytest.approx(9e-6, rel=0.3)
    space.write_text(SPACE)
    own, known = ("--calibration", out), ("--rung", "calibrated")
    task = ("-w", "bert-base", "--devices", 1, "--global-batch", 4, "--plans", "phaze", "--json")

    def answers(*verb):
        return [json.loads(dse(*verb, *task, *more)[1]) for more in (known, own)]

    plain, mine = answers("plan", "-a", CHIP)
    assert mine["best"]["iteration_time_s"] > plain["best"]["iteration_time_s"]
    searched = [
        json.loads(dse("run", "--space", space, *task, *more, "-q", "--out", tmp_path / f"run{k}")[1])
        for k, more in enumerate((known, own))
    ]
    slower = [one["best"]["workloads"]["bert-base"]["throughput_samples_per_s"] for one in searched]
    assert slower[1] < slower[0]
    assert searched[1]["certificate"]["optimal"]
    beside = [{row["name"]: row["result"] for row in one["comparison"]} for one in searched]
    assert beside[1]["h100"] == beside[0]["h100"]  # of another family: its own constants, as before
    code, _, err = dse("run", *task, *own, "--out", tmp_path / "other")
    assert (code, "space default" in err) == (2, True)


def test_a_bad_cell_of_an_own_table_is_one_sentence(dse, tmp_path):
    path = tmp_path / "products.csv"
    path.write_text("dtype,m,n,k,latency_us\nint3,8,8,8,1.0\n")
    code, _, err = dse("calibrate", path, "--arch", CHIP)
    assert (code, "line 2: 'int3' is not a format of operands" in err) == (2, True)


def test_no_rows_of_the_chip_is_one_sentence(dse, tmp_path):
    code, _, err = dse("calibrate", measurements(tmp_path), "--arch", "h200")
    assert (code, "no rows that were measured on h200" in err) == (2, True)


def test_constants_that_a_law_does_not_have_are_refused():
    with pytest.raises(InputError, match="speed are not the law's constants"):
        Constants("ampere", {FILE: {"speed": 1.0}}).law(SimtLaw, FILE)
