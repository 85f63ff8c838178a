"""The frontier on any axes is the one that brute force over all points finds."""

from __future__ import annotations

import numpy as np
import pytest
from small_cases import StopsSoon

from phaze.errors import InputError
from phaze.explore.answers.main_job import evaluate
from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.search_points import WorkloadPoints
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import config_of_placement
from phaze.explore.frontier.pareto_archive import nondominated
from phaze.explore.frontier.point_values import PointValues, best_leads, known_columns
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import METRICS, PRICED, metric
from phaze.explore.request.explore_request import Budgets, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.hardware.architecture import to_table
from phaze.scheduling.passes import SolveLimits

EFFORT = SolveLimits(lambda: 1e6, 1e7)


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 16, network, held={"microbatches": (1,)})


@pytest.fixture(scope="module")
def candidates(small_space):
    """Of the small space every architecture that keeps the budget."""
    return Candidates(small_space, Budgets(power_w=157.0))


@pytest.fixture(scope="module")
def evaluator(task, candidates):
    return Evaluator(task, candidates.all().table)


@pytest.fixture(scope="module")
def columns(candidates, task):
    """Design columns of the architectures."""
    return known_columns(candidates.all(), task.economics)


@pytest.fixture(scope="module")
def measured(evaluator):
    """The best plan of every architecture in every setting."""
    rows, measures = np.arange(len(evaluator.table)), Measures(evaluator)
    return {setting: measures.exact(setting, rows, EFFORT) for setting in evaluator.configs}


@pytest.fixture(scope="module")
def everything(evaluator, columns, measured):
    """Columns of all points that fit."""
    values = values_of(evaluator, columns, "throughput", *sorted(PRICED))
    parts = [
        values.columns(setting, np.flatnonzero(np.isfinite(m.iteration_s)), *figures(m))
        for setting, m in measured.items()
    ]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def figures(found):
    """Iteration times, energies and peaks of the plans there are."""
    fits = np.isfinite(found.iteration_s)
    return found.iteration_s[fits], found.energy_per_sample_j[fits], found.memory_bytes[fits]


def values_of(evaluator, columns, *names):
    return PointValues(evaluator, columns, SearchAxes(tuple(map(metric, names))))


def minimised(columns, axes):
    return np.stack([(-1 if a.maximise else 1) * a.of(columns) for a in axes], axis=1)


def search(candidates, task, axes, clock=None, floor=0.0, **options):
    clock = clock or Clock(1e6)
    points = WorkloadPoints.of(candidates, task, clock, SearchAxes(tuple(axes)), least=floor)
    return CertifiedSearch(points, clock, SilentProgress(), **options).run()


def told(outcome, axes):
    """Values of the frontier, (n, axes), less being better."""
    found, chosen = [outcome.evaluated[point] for point in outcome.members], SearchAxes(tuple(axes))
    others = np.array([one.others for one in found]).reshape(len(found), len(axes) - 1)
    columns = chosen.figures(others, np.array([one.lead for one in found]))
    return np.stack([(-1 if axis.maximise else 1) * columns[axis.column] for axis in axes], axis=1)


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
@pytest.mark.parametrize("block", [7, 1 << 15])
def test_the_frontier_is_that_of_brute_force(names, block, candidates, task, everything):
    axes = [metric(name) for name in names.split(",")]
    found = search(candidates, task, axes, block=block)
    assert found.finished
    values = minimised(everything, axes)
    expected = np.unique(values[nondominated(values)], axis=0)
    got = told(found, axes)
    assert len(np.unique(got, axis=0)) == len(got)
    # Rounding may split or join points that are equal: each side is matched by the other.
    for one, other in ((got, expected), (expected, got)):
        for row in one:
            assert np.isclose(other, row, rtol=1e-9, atol=0).all(axis=1).any()
    assert sum(found.pruned_by.values()) + len(found.evaluated) == found.in_budget * found.configs


COSTS = ("cost_per_sample", "cost_per_million_tokens", "carbon_per_sample", "carbon_per_million_tokens")


@pytest.mark.parametrize("name", ["energy_per_sample", "memory", "area", "throughput", *COSTS])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_one_axis_gives_the_best_point_that_keeps_the_floor(name, share, candidates, task, everything):
    floor = share * everything["throughput_samples_per_s"].max()
    axis = metric(name)
    found = search(candidates, task, [axis], floor=floor)
    kept = everything["throughput_samples_per_s"] >= floor
    best = minimised(everything, [axis])[kept].min()
    assert found.finished
    (point,) = found.members
    assert told(found, [axis])[0, 0] == pytest.approx(best, rel=1e-9)
    assert found.evaluated[point].value >= floor * (1 - 1e-9)


def test_bounds_spare_most_points(candidates, task):
    found = search(candidates, task, [metric("throughput"), metric("energy_per_sample")])
    assert 0 < len(found.evaluated) < 0.5 * found.in_budget * found.configs


@pytest.mark.parametrize("looks", [1, 2, 5, 12, 40])
def test_an_interrupted_search_bounds_what_is_missing(looks, candidates, task, everything):
    axes = [metric("throughput"), metric("energy_per_sample")]
    found = search(candidates, task, axes, StopsSoon(looks), block=7)
    assert sum(found.pruned_by.values()) + len(found.evaluated) == found.in_budget * found.configs
    assert not found.pruned_by or min(found.pruned_by.values()) > 0
    others, lead = found.undecided
    known = np.vstack([np.column_stack([-lead, others.reshape(len(lead), 1)]), told(found, axes)])
    for row in minimised(everything, axes):
        assert (known <= row + 1e-9 * np.abs(row)).all(axis=1).any()


def test_axes_are_given_once():
    for axes in ((), (metric("tdp"), metric("tdp"))):
        with pytest.raises(InputError, match="axis"):
            SearchAxes(axes)


def test_bounds_hold_at_every_point(evaluator, columns, measured):
    values = values_of(evaluator, columns, "throughput", "energy_per_sample", "memory", *COSTS)
    for setting, found in measured.items():
        rows = np.flatnonzero(np.isfinite(found.iteration_s))
        others, lead = values.axes.values(values.columns(setting, rows, *figures(found)), len(rows))
        for least_s in (evaluator.iteration_bound(setting, rows), found.iteration_s[rows]):
            least, most = values.optimistic(setting, rows, least_s)
            assert (least <= others).all()
            assert (most >= lead).all()


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


@pytest.mark.parametrize(
    "name", ["energy_per_sample", "throughput", "throughput_per_tdp", "mfu", "cost_per_sample"]
)
def test_iteration_times_that_are_given_up_lead_to_nothing_better(name, evaluator, columns, measured):
    values = PointValues(evaluator, columns, SearchAxes((metric(name),)))
    everywhere = [
        values.axes.values(values.columns(s, *fitting(m), *figures(m)), len(fitting(m)[0]))[1]
        for s, m in measured.items()
    ]
    limit = float(np.median(np.concatenate(everywhere)))
    spared = 0
    for (setting, found), exact in zip(measured.items(), everywhere, strict=True):
        (rows,) = fitting(found)
        longest_s = values.give_up_s(setting, rows, np.full(len(rows), limit))
        late = found.iteration_s[rows] > longest_s
        assert (exact[late] < limit).all()
        at_limit = values.optimistic(setting, rows, longest_s)[1]
        known = longest_s > 1e-6  # less than work alone takes where nothing reaches the limit
        np.testing.assert_allclose(at_limit[known], limit, rtol=1e-9)
        spared += int(late.sum())
    assert spared > 0


def fitting(found):
    """Rows of the architectures that have a plan."""
    return (np.flatnonzero(np.isfinite(found.iteration_s)),)


def test_nothing_is_given_up_for_what_does_not_follow_from_time(evaluator, columns):
    setting, rows = evaluator.configs[0], np.arange(len(evaluator.table))
    memory = values_of(evaluator, columns, "memory")
    assert np.isinf(memory.give_up_s(setting, rows, np.ones(len(rows)))).all()
    for name in ("energy_per_sample", "throughput"):  # nothing is known yet
        values = values_of(evaluator, columns, name)
        assert np.isinf(values.give_up_s(setting, rows, np.zeros(len(rows)))).all()


def test_points_that_their_work_rules_out_are_not_bounded_further(task, candidates, monkeypatch):
    def bounded():
        rows, quick = [], Evaluator.iteration_bound
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                Evaluator,
                "iteration_bound",
                lambda self, s, at, *a: rows.append(len(at)) or quick(self, s, at, *a),
            )
            found = search(candidates, task, [metric("energy_per_sample")], block=7)
        return sum(rows), found.most

    count, best = bounded()
    monkeypatch.setattr(Evaluator, "work_bound", lambda self, setting, rows: np.full(len(rows), 1e-9))
    more, same = bounded()
    assert count < more
    assert best == same


def test_the_best_point_of_every_architecture_is_that_of_all_its_points(evaluator, columns, measured):
    for name in ("energy_per_sample", "mfu"):
        values = values_of(evaluator, columns, name)
        found = np.zeros(len(evaluator.table))
        for setting, m in measured.items():
            (rows,) = fitting(m)
            lead = values.axes.values(values.columns(setting, rows, *figures(m)), len(rows))[1]
            found[rows] = np.maximum(found[rows], lead)
        np.testing.assert_allclose(best_leads(values, EFFORT)[1], found, rtol=1e-9)
