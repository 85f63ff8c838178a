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
from phaze.validation.single_operators import product

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
    assert (code, "is one of a100-80gb" in err) == (2, True)


def test_no_rows_of_the_chip_is_one_sentence(dse, tmp_path):
    code, _, err = dse("calibrate", measurements(tmp_path), "--arch", "h200")
    assert (code, "no rows that were measured on h200" in err) == (2, True)


def test_constants_that_a_law_does_not_have_are_refused():
    with pytest.raises(InputError, match="speed are not the law's constants"):
        Constants("ampere", {FILE: {"speed": 1.0}}).law(SimtLaw, FILE)
