from __future__ import annotations

import io

import pytest
from rich.console import Console

from phaze.explore.documents.robustness_document import RobustDesign, Robustness, VariedConstant
from phaze.report.terminal.robustness_tables import print_robustness


def design(i):
    return RobustDesign(
        id=f"tc{2**i}x256x256-vc4x2048-gb16MiB-hbm3ex6",
        architecture={},
        alike=i + 1,
        throughput_samples_per_s=100.0 - i,
        tdp_w=390.0 - i,
        area_mm2=500.0,
        price=i / 100,
        best_probability=0.5 / (i + 1),
        mean_regret=0.01,
        worst_regret=0.1 - i / 100,
        least_value=60.0 + i,
        throughput_range_samples_per_s=(70.0, 98.0),
        tdp_range_w=(310.0, 455.0),
        over_power_probability=0.25 if i else None,
        over_area_probability=None,
    )


@pytest.fixture
def robustness():
    designs = [design(i) for i in range(4)]
    return Robustness(
        summary="the first stays the best",
        objective="throughput",
        slack=0.05,
        near_optimal=110,
        promising=333,
        complete=False,
        scenarios=64,
        seed=0,
        rank_correlation=0.63,
        least_rank_correlation=0.05,
        winner=designs[0].id,
        least_regret=designs[3].id,
        best_worst_case=designs[2].id,
        designs=designs,
        constants=[VariedConstant(group="chip", name="mac_rate", low=0.6, high=1.0, source="assumed")],
    )


def test_designs_marks_and_constants_fit_eighty_columns(robustness):
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_robustness(robustness, console)
    lines = console.file.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 80
    rows = {line.split()[0]: line.rstrip() for line in lines if line.strip()}
    assert " r " in rows[robustness.least_regret]
    assert " w " in rows[robustness.best_worst_case]
    assert "- " in rows[robustness.winner] or rows[robustness.winner].endswith("-")
    assert "time was over" in console.file.getvalue()
    assert "x 0.6" in rows["MAC"]
