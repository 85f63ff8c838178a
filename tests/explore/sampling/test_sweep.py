"""Sweeps: the same study whatever interrupts it and whoever evaluates, nothing evaluated twice or in vain."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import sweeps
from optuna.trial import TrialState
from sweeps import SPACE, Chips, load, run, study

from phaze.errors import InfeasibleError, InputError, WorkerLostError
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, PowerMeans
from phaze.explore.request.search_progress import SilentProgress
from phaze.explore.request.search_resources import SearchResources
from phaze.explore.sampling.optuna_sweep import Sweep, non_dominated
from phaze.explore.sampling.sampled_study import Sampler
from phaze.explore.sampling.study_record import StudyPlace
from phaze.explore.sampling.study_storage import without_password
from phaze.hardware.spaces.space_file import parse_space
from phaze.runs.executors.open_executor import open_executor
from phaze.runs.executors.packed_work import packed

CHEAP = [s for s in Sampler if s is not Sampler.GP]  # a Gaussian process takes seconds per trial


class Doomed(Chips):
    """Ends its process without a word."""

    def do(self, number):
        os._exit(7)


def of(sampler):
    """A sampler with as many objectives as it takes."""
    if sampler is Sampler.CMAES:
        pytest.importorskip("cmaes")
        return {"sampler": sampler, "objectives": (metric("throughput"),)}
    if sampler is Sampler.GP:
        pytest.importorskip("torch")
        pytest.importorskip("scipy")
    return {"sampler": sampler}


@pytest.mark.parametrize("sampler", CHEAP)
def test_enough_trials_find_the_best_and_only_designs_within_the_limits(make_sweep, sampler):
    plan = make_sweep(64, **of(sampler))
    result, _ = run(plan)
    block = plan.candidates.all()
    best = max(map(Chips(plan.task, plan.candidates).do, block.numbers.tolist()), key=speed)
    assert max(map(speed, result.frontier)) >= 0.95 * speed(best)
    assert all(row["tdp_w"] <= 300.0 for row in result.designs)
    assert len({row["id"] for row in result.designs}) == len(result.designs)
    assert result.trials == 64
    assert 0 < result.infeasible < 64


def speed(row):
    return row["throughput_samples_per_s"]


@pytest.mark.slow
def test_the_gaussian_process_samples_too(make_sweep):
    result, _ = run(make_sweep(17, **of(Sampler.GP)))  # the first two batches are random
    assert result.trials == 17
    assert result.frontier


def test_nothing_is_evaluated_twice_or_beyond_the_limits(make_sweep):
    plan = make_sweep(40)
    _, sweep = run(plan)
    asked = sweep.assessor.asked
    assert len(asked) == len(set(asked)) < 40
    table = sweep.assessor.candidates.table(np.array(asked))
    within = Candidates(plan.candidates.space, plan.candidates.budgets).within(range(plan.candidates.size))
    kept = {
        tuple(within.table[n][i] for n in ("tensor_cores", "node", "hbm_stacks")) for i in range(len(within))
    }
    assert all(
        tuple(table[n][i] for n in ("tensor_cores", "node", "hbm_stacks")) in kept for i in range(len(asked))
    )
    _, again = run(dataclasses.replace(plan, trials=48))
    assert not set(again.assessor.asked) & set(asked)


@pytest.mark.parametrize("sampler", CHEAP)
@pytest.mark.parametrize("cut", [3, 59])
def test_stopped_and_resumed_is_the_same_study(make_sweep, sampler, cut):
    whole, parts = make_sweep(66, **of(sampler)), make_sweep(66, "b", **of(sampler))
    result, _ = run(whole)
    asked = iter(range(1000))
    with suppress(InfeasibleError):
        run(parts, stop=lambda: next(asked) >= cut)
    assert len(study(parts)) == cut
    resumed, _ = run(parts)
    assert study(parts) == study(whole)
    assert resumed == result


def test_stopped_inside_an_evaluation_nothing_of_it_is_kept(make_sweep):
    """Ctrl-C is heard between the steps of one evaluation, not only between candidates."""
    whole = make_sweep(4)
    looks = itertools.count()
    Sweep(whole, SilentProgress(), lambda: next(looks) < 0).run()
    asked = next(looks)
    assert asked > 20
    for nr, at in enumerate(range(3, asked, 4)):
        parts, left = make_sweep(4, f"part{nr}"), itertools.count()
        with suppress(InfeasibleError):
            Sweep(parts, SilentProgress(), lambda left=left, at=at: next(left) >= at).run()
        assert next(left) - at < 6  # of the first look on that says stop
        assert study(parts) == study(whole)[: len(study(parts))]
        Sweep(parts, SilentProgress()).run()
        assert study(parts) == study(whole)


def test_fewer_trials_first_and_more_later_is_the_same_study(make_sweep):
    whole, parts = make_sweep(30), make_sweep(30, "b")
    run(whole)
    for trials in (5, 12, 30):
        run(dataclasses.replace(parts, trials=trials))
    assert study(parts) == study(whole)


def test_a_finished_sweep_evaluates_nothing_again(make_sweep):
    first, _ = run(make_sweep(16))
    again, sweep = run(make_sweep(16))
    assert again == first
    assert sweep.assessor.asked == []


def test_a_torn_last_line_of_a_killed_run_is_dropped(make_sweep):
    whole, torn = make_sweep(20), make_sweep(20, "b")
    run(whole)
    run(dataclasses.replace(torn, trials=13))
    journal = torn.place.storage
    journal.write_bytes(journal.read_bytes()[:-40])
    run(torn)
    assert study(torn) == study(whole)


def test_another_sweep_in_the_same_study_is_refused(make_sweep):
    run(make_sweep(8))
    for other, differs in (
        ({"seed": 2}, r"seed 1 \(here 2\)$"),
        ({"objectives": (metric("throughput"),)}, "objectives"),
        ({"limits": {"power_w": 301.0}}, r"budgets.power_w 300.0 \(here 301.0\)$"),
        ({"sampler": Sampler.RANDOM, "batch": 9}, r"batch 8 \(here 9\), sampler tpe \(here random\)$"),
    ):
        with pytest.raises(InputError, match=f"was begun with another {differs}"):
            run(make_sweep(8, **other))
    with pytest.raises(InputError, match="holds 8 trials; add --resume"):
        run(make_sweep(16, resume=False))


def test_workers_change_nothing(make_sweep):
    alone = make_sweep(24)
    result, _ = run(alone)
    together = make_sweep(24, "together")
    with open_executor(3) as team:
        assert run(together, resources=SearchResources(team))[0] == result
    assert study(together) == study(alone)


def test_a_worker_that_dies_is_told_in_one_sentence_and_the_study_goes_on(make_sweep):
    plan, whole = make_sweep(16), make_sweep(16, "b")
    with (
        open_executor(2) as team,
        pytest.raises(WorkerLostError, match=r"died \(exit code 7\).*--resume"),
    ):
        run(plan, kind=Doomed, resources=SearchResources(team))
    run(plan)
    run(whole)
    assert study(plan) == study(whole)


def test_same_seed_same_study_in_another_process(make_sweep, tmp_path):
    plan = make_sweep(20)
    run(plan)
    code = (
        "import sys, pathlib, pickle, dataclasses; sys.path.insert(0, sys.argv[1]); import sweeps as t;"
        "import phaze.explore.sampling.study_record as p;"
        "plan = pickle.loads(pathlib.Path(sys.argv[2]).read_bytes());"
        "plan = dataclasses.replace(plan, place=p.StudyPlace(pathlib.Path(sys.argv[3])));"
        "t.run(plan)"
    )
    cases = Path(sweeps.__file__).parent
    (tmp_path / "plan").write_bytes(packed(make_sweep(20)).content)
    for hash_seed in ("1", "2"):
        journal = tmp_path / f"{hash_seed}.journal"
        arguments = [str(cases), str(tmp_path / "plan"), str(journal)]
        environment = {"PYTHONHASHSEED": hash_seed, "HOME": os.environ.get("HOME", "/")}
        subprocess.run([sys.executable, "-c", code, *arguments], env=environment, check=True)
        assert study(dataclasses.replace(plan, place=StudyPlace(journal))) == study(plan)


def test_a_database_keeps_the_same_study(make_sweep, database):
    kept, journal = make_sweep(12, place=StudyPlace(database)), make_sweep(12, "b")
    run(dataclasses.replace(kept, trials=5))
    result, _ = run(kept)
    assert run(journal)[0] == result
    assert study(kept) == study(journal)
    assert run(make_sweep(4, place=StudyPlace(database, "other")))[0].trials == 4


def test_optuna_reads_the_study_as_its_own(make_sweep):
    result, _ = run(make_sweep(40))
    found = load(make_sweep(40))
    assert found.metric_names == ["throughput", "tdp"]
    assert [d.name for d in found.directions] == ["MAXIMIZE", "MINIMIZE"]
    ids = {t.user_attrs["id"] for t in found.best_trials}
    assert ids == {row["id"] for row in result.frontier}
    for trial in found.get_trials():
        assert set(trial.constraints) == {"power", "reticle", "shoreline", "heat", "memory"}
        assert json.loads(json.dumps(trial.user_attrs)) == trial.user_attrs


@pytest.mark.parametrize("kept", ["journal", "database"])
def test_a_trial_carries_what_was_computed_or_no_value_at_all(make_sweep, tmp_path, kept):
    place = {"place": StudyPlace(f"sqlite:///{tmp_path}/a.db")} if kept == "database" else {}
    plan = make_sweep(40, **place)
    run(plan)
    states = set()
    for trial in load(plan).get_trials():
        states.add(trial.state)
        figures = trial.user_attrs
        if trial.state is TrialState.COMPLETE:
            assert trial.values == [figures["throughput_samples_per_s"], figures["tdp_w"]]
        else:
            assert trial.values is None
            assert "throughput_samples_per_s" not in figures
            assert figures["tdp_w"] > 0  # known without an evaluation
            assert max(trial.constraints.values()) > 0
    assert states == {TrialState.COMPLETE, TrialState.PRUNED}


@pytest.mark.parametrize("sampler", CHEAP)
def test_a_computed_design_beyond_a_limit_keeps_its_values_and_is_not_among_the_best(make_sweep, sampler):
    limits = {"power_w": 1000.0, "power_means": PowerMeans.SUSTAINED}
    plan = make_sweep(32, limits=limits, **of(sampler))
    result, _ = run(plan)
    trials = load(plan).get_trials()
    beyond = [t for t in trials if t.state is TrialState.COMPLETE and t.constraints["power"] > 0]
    assert beyond
    for trial in beyond:
        drawn = trial.user_attrs["throughput_samples_per_s"] * trial.user_attrs["energy_per_sample_j"] / 8
        assert trial.values[0] == trial.user_attrs["throughput_samples_per_s"]
        assert trial.constraints["power"] == pytest.approx(drawn / 1000.0 - 1.0)
    assert not {t.user_attrs["id"] for t in beyond} & {row["id"] for row in result.designs}


def test_budgets_nothing_keeps_are_told_before_any_trial(make_sweep):
    with pytest.raises(InfeasibleError, match="keeps the budgets") as caught:
        run(make_sweep(8, limits={"power_w": 1.0}))
    assert caught.value.shortfalls[0].what == "power"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("nonsense", "not a database URL"),
        ("sqlite:////no/such/folder/x.db", "cannot be opened"),
        ("mysql://host/name", "driver that is not installed"),
    ],
)
def test_a_storage_that_cannot_be_used_is_told_in_one_sentence(make_sweep, url, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        run(make_sweep(8, place=StudyPlace(url)))
    assert "\n" not in str(caught.value)


def test_a_password_is_never_shown():
    for url in ("postgresql://me:secret@host/name", "postgresql://host/name?user=me&password=secret"):
        assert "secret" not in without_password(url)
        assert "host" in without_password(url)
    assert "secret" not in str(StudyPlace("postgresql://me:secret@host/name", "x"))


def test_a_missing_package_is_told_with_the_extra_that_brings_it(make_sweep, monkeypatch):
    monkeypatch.setattr("phaze.explore.sampling.sampled_study.find_spec", lambda name: None)
    for sampler in (Sampler.GP, Sampler.CMAES):
        with pytest.raises(InputError, match=rf"pip install '\.\[{sampler}\]'"):
            run(make_sweep(8, sampler=sampler, objectives=(metric("throughput"),)))
    monkeypatch.undo()
    pytest.importorskip("cmaes")
    with pytest.raises(InputError, match="takes one objective"):
        run(make_sweep(8, sampler=Sampler.CMAES))


def test_figures_are_those_of_the_whole_design(make_sweep):
    plan = make_sweep(8, limits={"power_w": 400.0})
    sweep = Sweep(plan, SilentProgress())
    result = sweep.run()
    builder = DesignBuilder(plan.task)
    for row in result.frontier[:2]:
        design = sweep.design(row)
        expected = builder.best(sweep.assessor.candidates.architecture(row["candidate"]))
        assert design == expected
        done = next(iter(design.workloads.values()))
        assert row["id"] == design.id
        assert row["throughput_samples_per_s"] == done.throughput_samples_per_s
        assert row["energy_per_sample_j"] == pytest.approx(done.energy_per_iteration_j / 8)
        assert (row["memory_bytes"], row["mfu"]) == (done.memory_bytes, done.mfu)
        assert (row["tdp_w"], row["area_mm2"]) == (design.tdp_w, design.area_mm2)
        assert {name: row[name] for name in design.architecture} == dict(design.architecture)


def test_what_does_not_fit_in_memory_is_missed_by_a_share(make_sweep):
    space = dataclasses.replace(parse_space(SPACE, "small.yaml"), hbm_capacities_bytes=(2.0**25, 2.0**35))
    plan = make_sweep(8, candidates=Candidates(space, Budgets()))
    result = Sweep(plan, SilentProgress()).run()
    for trial in load(plan).get_trials():
        small = trial.params["hbm_capacity_bytes"] == 2**25
        if all(v <= 0 for name, v in trial.constraints.items() if name != "memory"):
            assert (trial.constraints["memory"] > 0) == small
    assert all(row["hbm_capacity_bytes"] == 2.0**35 for row in result.designs)


def test_non_dominated_by_its_definition():
    rng = np.random.default_rng(0)
    rows = [
        {"throughput_samples_per_s": float(a), "tdp_w": float(b), "area_mm2": float(c)}
        for a, b, c in rng.integers(0, 5, (60, 3))
    ]
    objectives = [metric("throughput"), metric("tdp"), metric("area")]

    def point(row):
        return (-row["throughput_samples_per_s"], row["tdp_w"], row["area_mm2"])

    expected = {
        point(r)
        for r in rows
        if not any(
            all(a <= b for a, b in zip(point(o), point(r), strict=True)) and point(o) != point(r)
            for o in rows
        )
    }
    kept = non_dominated(rows, objectives)
    assert {point(row) for row in kept} == expected
    assert len(kept) == len(expected)
