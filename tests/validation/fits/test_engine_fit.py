"""Constants of engines are found again where runs were made with them, and told on groups that were left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.parallel.serving import Traffic
from phaze.parallel.serving.serving_engine import Overheads
from phaze.validation.fits.engine_fit import CONSTANTS, LinearFit, engine_fits
from phaze.validation.sets.serving.engine_runs import EngineRun, RunRow, engine_cycle, engine_replica


def test_constants_of_rows_that_were_made_with_them():
    run = EngineRun("llama3.1-70b", "h200_sxm", "vllm", None, None, 8, 1, Traffic(64, 32), apart=False)
    replica = replace(engine_replica(run, Fidelity.CALIBRATED, 16), overheads=Overheads(2e-3, 1e-4))
    clients = np.array([1.0, 4.0, 9.0, 16.0])
    seconds = engine_cycle(replica, clients)[0].tpot_s
    rows = [RunRow(run, n, 0.1, s) for n, s in zip(clients.tolist(), seconds.tolist(), strict=True)]
    ((engine, (found, (fit, first))),) = engine_fits(rows, "made_up").items()
    assert engine == "vllm"
    assert (found.step_s, found.sequence_s, found.expert_layer_s) == pytest.approx((2e-3, 1e-4, 0), rel=0.05)
    assert fit.error_pct < 0.5 < fit.before_pct
    assert fit.rows == 4
    assert fit.left_out_pct is None  # nothing is left where the only group is left out
    assert found.request_s == pytest.approx(0.1, rel=0.5)
    assert first.constants == ("request_s",)


def test_groups_that_are_left_out_are_judged_by_the_others():
    """Two groups with 1 added, one with 2: on the third the constant of the others is half of what it takes."""
    base, slopes = np.full(9, 0.5), np.zeros((9, len(CONSTANTS)))
    slopes[:, 0] = np.repeat([0.5, 0.5, 0.25], 3)
    fit = LinearFit(base, slopes, np.repeat([0, 1, 2], 3))
    assert fit.constants == pytest.approx([1, 0, 0], abs=1e-3)
    assert fit.error(fit.constants) == pytest.approx(0.25 / 3, rel=0.01)
    assert fit.left_out == pytest.approx((0 + 0 + 0.25) / 3, rel=0.01)


def test_constants_are_never_below_zero():
    fit = LinearFit(np.full(4, 1.2), np.ones((4, len(CONSTANTS))) * 0.1, np.arange(4))
    assert fit.constants == pytest.approx([0, 0, 0])
