"""The frontier on any axes is the one that brute force over all points finds."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.errors import InputError
from phaze.explore.answers.main_job import evaluate
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import config_of_placement
from phaze.explore.frontier import pareto_search
from phaze.explore.frontier.pareto_archive import nondominated
from phaze.explore.frontier.pareto_points import PointValues
from phaze.explore.frontier.pareto_search import ParetoSearch
from phaze.explore.request.design_metrics import METRICS, PRICED, metric
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture import to_table
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.scheduling.passes import SolveLimits

EFFORT = SolveLimits(lambda: 1e6, 1e7)


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 16, network, held={"microbatches": (1,)})


@pytest.fixture(scope="module")
def evaluator(task, small_space):
    """Every 17th architecture of the small space."""
    return Evaluator(task, small_space.table().take(np.arange(0, 96, 17)))


@pytest.fixture(scope="module")
def columns(evaluator):
    """Design columns of the architectures; prices as a made-up function of area."""
    area = area_mm2(evaluator.table)
    return {"tdp_w": tdp_w(evaluator.table), "area_mm2": area, "price_usd": 100.0 + 0.3 * area}


@pytest.fixture(scope="module")
def measured(evaluator):
    """The best plan of every architecture in every setting."""
    rows, measures = np.arange(len(evaluator.table)), Measures(evaluator)
    return {setting: measures.exact(setting, rows, EFFORT) for setting in evaluator.configs}


@pytest.fixture(scope="module")
def everything(evaluator, columns, measured):
    """Columns of all points that fit."""
    axes = [metric("throughput"), *map(metric, sorted(PRICED))]
    values = PointValues(Measures(evaluator), columns, axes)
    parts = [
        values.columns(setting, np.flatnonzero(np.isfinite(m.iteration_s)), *figures(m))
        for setting, m in measured.items()
    ]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def figures(found):
    """Iteration times, energies and peaks of the plans there are."""
    fits = np.isfinite(found.iteration_s)
    return found.iteration_s[fits], found.energy_per_sample_j[fits], found.memory_bytes[fits]


def minimised(columns, axes):
    return np.stack([(-1 if a.maximise else 1) * a.of(columns) for a in axes], axis=1)


def search(evaluator, columns, axes, clock=None, floor=0.0):
    return ParetoSearch(evaluator, columns, axes, clock or Clock(1e6), floor)


AXES = [
    "throughput,energy_per_sample",
    "throughput,memory",
    "throughput,tdp,area",
    "throughput,tdp,energy_per_sample,memory",
    "throughput_per_tdp,mfu,cost_per_chip",
    "cost_per_sample,tdp",
    "throughput,cost_per_million_tokens,carbon_per_sample",
    "tdp,energy_per_sample",
]


@pytest.mark.parametrize("names", AXES)
def test_the_frontier_is_that_of_brute_force(names, evaluator, columns, everything):
    axes = [metric(name) for name in names.split(",")]
    found = search(evaluator, columns, axes).run()
    assert found.complete
    values = minimised(everything, axes)
    expected = np.unique(values[nondominated(values)], axis=0)
    got = np.array(
        [minimised({n: np.array([v]) for n, v in p.columns.items()}, axes)[0] for p in found.points]
    )
    assert len(np.unique(got, axis=0)) == len(got)
    # Rounding may split or join points that are equal: each side is matched by the other.
    for one, other in ((got, expected), (expected, got)):
        for row in one:
            assert np.isclose(other, row, rtol=1e-9, atol=0).all(axis=1).any()
    assert sum(found.counts.values()) == len(evaluator.configs) * len(evaluator.table)


COSTS = ("cost_per_sample", "cost_per_million_tokens", "carbon_per_sample", "carbon_per_million_tokens")


@pytest.mark.parametrize("name", ["energy_per_sample", "memory", "area", "throughput", *COSTS])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_one_axis_gives_the_best_point_that_keeps_the_floor(name, share, evaluator, columns, everything):
    floor = share * everything["throughput_samples_per_s"].max()
    axis = metric(name)
    found = search(evaluator, columns, [axis], floor=floor).run()
    kept = everything["throughput_samples_per_s"] >= floor
    best = minimised(everything, [axis])[kept].min()
    assert found.complete
    (point,) = found.points
    assert axis.value(point.columns) == pytest.approx(abs(best), rel=1e-9)
    assert point.columns["throughput_samples_per_s"] >= floor * (1 - 1e-9)


def test_bounds_spare_most_points(evaluator, columns):
    axes = [metric("throughput"), metric("energy_per_sample")]
    counts = search(evaluator, columns, axes).run().counts
    assert 0 < counts["evaluated"] < 0.5 * sum(counts.values())


def test_an_interrupted_search_bounds_what_is_missing(evaluator, columns, everything):
    class StopsSoon(Clock):
        looks = 0

        @property
        def over(self):
            self.looks += 1
            return self.looks > 2

    axes = [metric("throughput"), metric("energy_per_sample")]
    found = search(evaluator, columns, axes, StopsSoon(1e6)).run()
    assert not found.complete
    assert found.counts["open"] == len(found.open_values)
    got = [[axis.value(p.columns) for axis in axes] for p in found.points]
    known = np.vstack([found.open_values, np.array(got).reshape(len(got), 2) * [-1, 1]])
    for row in minimised(everything, axes):
        assert (known <= row + 1e-9 * np.abs(row)).all(axis=1).any()


def test_axes_are_given_once(evaluator, columns):
    for axes in ([], [metric("tdp"), metric("tdp")]):
        with pytest.raises(InputError, match="axis"):
            search(evaluator, columns, axes)


def test_bounds_hold_at_every_point(evaluator, columns, measured):
    axes = [METRICS[name] for name in ("throughput", "energy_per_sample", "memory", *COSTS)]
    values = PointValues(Measures(evaluator), columns, axes)
    for setting, found in measured.items():
        rows = np.flatnonzero(np.isfinite(found.iteration_s))
        exact = values.minimised(values.columns(setting, rows, *figures(found)))
        for least_s in (evaluator.iteration_bound(setting, rows), found.iteration_s[rows]):
            assert (values.optimistic(setting, rows, least_s) <= exact).all()


def test_measures_are_those_of_the_reported_design(task, small_space):
    chip = small_space.architecture(5)
    result = evaluate(task, chip).workloads["tiny"]
    one, setting = Evaluator(task, to_table([chip])), config_of_placement(task, result.placement)
    found = Measures(one).exact(setting, np.array([0]), EFFORT)
    energy = result.energy_per_iteration_j / result.global_batch
    assert found.energy_per_sample_j[0] == pytest.approx(energy, rel=1e-12)
    assert found.memory_bytes[0] == result.memory_bytes


def test_every_metric_says_what_it_needs(everything):
    for axis in METRICS.values():
        columns = everything
        if axis.name.startswith("score"):  # only designs for several workloads have one
            with pytest.raises(InputError, match="no column 'score'"):
                axis.of(everything)
            columns = everything | {"score": np.ones_like(everything["tdp_w"])}
        assert axis.of(columns).shape == everything["tdp_w"].shape


@pytest.mark.parametrize("name", ["energy_per_sample", "throughput", "cost_per_sample", "carbon_per_sample"])
def test_iteration_times_that_are_given_up_lead_to_nothing_better(name, evaluator, columns, measured):
    values = PointValues(Measures(evaluator), columns, [metric(name)])
    everywhere = [
        values.minimised(values.columns(s, *fitting(m), *figures(m)))[:, 0] for s, m in measured.items()
    ]
    limit = float(np.median(np.concatenate(everywhere)))
    spared = 0
    for (setting, found), exact in zip(measured.items(), everywhere, strict=True):
        (rows,) = fitting(found)
        longest_s = values.longest_s(setting, rows, np.full(len(rows), limit))
        late = found.iteration_s[rows] > longest_s
        assert (exact[late] > limit).all()
        at_limit = values.optimistic(setting, rows, longest_s)[:, 0]
        np.testing.assert_allclose(at_limit[longest_s > 0], limit, rtol=1e-9)
        spared += int(late.sum())
    assert spared > 0


def fitting(found):
    """Rows of the architectures that have a plan."""
    return (np.flatnonzero(np.isfinite(found.iteration_s)),)


def test_nothing_is_given_up_for_what_does_not_follow_from_time(evaluator, columns):
    values = PointValues(Measures(evaluator), columns, [metric("memory")])
    setting, rows = evaluator.configs[0], np.arange(len(evaluator.table))
    assert np.isinf(values.longest_s(setting, rows, np.ones(len(rows)))).all()
    energy = PointValues(Measures(evaluator), columns, [metric("energy_per_sample")])
    assert np.isinf(energy.longest_s(setting, rows, np.full(len(rows), np.inf))).all()
    speed = PointValues(Measures(evaluator), columns, [metric("throughput")])
    assert np.isinf(speed.longest_s(setting, rows, np.full(len(rows), np.inf))).all()


def test_points_that_their_work_rules_out_are_not_bounded_further(task, small_space, monkeypatch):
    evaluator = Evaluator(task, small_space.table())
    area = area_mm2(evaluator.table)
    columns = {"tdp_w": tdp_w(evaluator.table), "area_mm2": area, "price_usd": area}
    monkeypatch.setattr(pareto_search, "SAMPLE", 8)

    def bounded():
        rows, quick = [], Evaluator.iteration_bound
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                Evaluator,
                "iteration_bound",
                lambda self, s, at, *a: rows.append(len(at)) or quick(self, s, at, *a),
            )
            (point,) = search(evaluator, columns, [metric("energy_per_sample")]).run().points
        return sum(rows), point.columns["energy_per_sample_j"]

    count, best = bounded()
    monkeypatch.setattr(Evaluator, "work_bound", lambda self, setting, rows: np.full(len(rows), 1e-9))
    more, same = bounded()
    assert count < more
    assert best == same
