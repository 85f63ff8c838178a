"""Sweeps: the same study whatever interrupts it and whoever evaluates, nothing evaluated twice or in vain."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import optuna
import pytest

from phaze.errors import InfeasibleError, InputError
from phaze.explore.candidates import Candidates
from phaze.explore.designs import DesignBuilder
from phaze.explore.metrics import metric
from phaze.explore.progress import Silent
from phaze.explore.request import Budgets, Task
from phaze.explore.sampling.assessor import Assessor
from phaze.explore.sampling.record import Place, without_password
from phaze.explore.sampling.samplers import Sampler
from phaze.explore.sampling.workers import WorkerLostError, packed
from phaze.explore.sweep import Sweep, SweepPlan, non_dominated
from phaze.hardware.network import load_network
from phaze.hardware.space_file import parse_space
from phaze.scheduling.passes import Effort

SPACE = """
schema_version: 1
name: small
axes:
  - {fields: [tensor_cores], powers_of_two: [1, 32]}
  - {fields: [tensor_core_rows], values: [64, 96]}
  - {fields: [node], values: [N5, N7]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
  - {fields: [vector_cores], values: [2, 3, 4], when: {node: [N5]}, otherwise: 1}
"""
CHEAP = [s for s in Sampler if s is not Sampler.GP]  # a Gaussian process takes seconds per trial
POSTGRES = "DSE_TEST_POSTGRES"  # URL of a database in which studies may be created


@dataclass
class Chips(Assessor):
    """A closed-form answer instead of an evaluation: more cores are faster."""

    asked: list[int] = field(default_factory=list)

    def assess(self, numbers):
        table = self.candidates.table(np.array(numbers, dtype=np.int64))
        for i, number in enumerate(numbers):
            self.asked.append(number)
            speed = float(table["tensor_cores"][i] * table["tensor_core_rows"][i] * table["hbm_stacks"][i])
            yield {
                "throughput_samples_per_s": speed + float(table["vector_cores"][i]),
                "energy_per_sample_j": 1.0 + speed % 7,
                "memory_bytes": 1e9,
                "mfu": 0.5,
                "microbatch_size": 1,
                "tensor_parallel": 1,
                "recompute": "none",
                "memory_missed": -0.5,
            }


class Doomed(Chips):
    """Ends its process without a word."""

    def assess(self, numbers):
        os._exit(7)


@dataclass
class ChipSweep(Sweep):
    kind: type = Chips

    @cached_property
    def assessor(self):
        return self.kind(self.plan.task, self._scope.grid)


@pytest.fixture(scope="session")
def task(tiny):
    return Task(tiny, 8, load_network(), 8)


@pytest.fixture
def make(task, tmp_path):
    """A plan whose study is in a fresh folder."""

    def plan(trials, folder="a", **changes):
        (tmp_path / folder).mkdir(exist_ok=True)
        limits = changes.pop("limits", {"power_w": 300.0})
        base = SweepPlan(
            task=task,
            candidates=Candidates(parse_space(SPACE, "small.yaml"), Budgets(**limits)),
            objectives=(metric("throughput"), metric("tdp")),
            trials=trials,
            place=Place(tmp_path / folder / "study.journal"),
            seed=1,
            resume=True,
        )
        return dataclasses.replace(base, **changes)

    return plan


def of(sampler):
    """A sampler with as many objectives as it takes."""
    if sampler is Sampler.CMAES:
        pytest.importorskip("cmaes")
        return {"sampler": sampler, "objectives": (metric("throughput"),)}
    if sampler is Sampler.GP:
        pytest.importorskip("torch")
        pytest.importorskip("scipy")
    return {"sampler": sampler}


def run(plan, stop=lambda: False, kind=Chips):
    sweep = ChipSweep(plan, Silent(), stop, kind=kind)
    return sweep.run(), sweep


def study(plan):
    """What makes a study: parameters, values and constraints of its trials."""
    trials = load(plan).get_trials()
    assert [t.number for t in trials] == list(range(len(trials)))
    assert all(t.state.is_finished() for t in trials)
    return [(t.params, t.values, t.constraints, t.user_attrs) for t in trials]


def load(plan):
    storage = plan.place.storage
    if isinstance(storage, Path):
        backend = optuna.storages.journal.JournalFileBackend(str(storage))
        storage = optuna.storages.JournalStorage(backend)
    return optuna.load_study(study_name=plan.place.study, storage=storage)


@pytest.mark.parametrize("sampler", CHEAP)
def test_enough_trials_find_the_best_and_only_designs_within_the_limits(make, sampler):
    plan = make(64, **of(sampler))
    result, _ = run(plan)
    block = plan.candidates.all()
    best = max(Chips(plan.task, plan.candidates).assess(block.numbers), key=speed)
    assert max(map(speed, result.frontier)) >= 0.95 * speed(best)
    assert all(row["tdp_w"] <= 300.0 for row in result.designs)
    assert len({row["id"] for row in result.designs}) == len(result.designs)
    assert result.trials == 64
    assert 0 < result.infeasible < 64


def speed(row):
    return row["throughput_samples_per_s"]


@pytest.mark.slow
def test_the_gaussian_process_samples_too(make):
    result, _ = run(make(17, **of(Sampler.GP)))  # the first two batches are random
    assert result.trials == 17
    assert result.frontier


def test_nothing_is_evaluated_twice_or_beyond_the_limits(make):
    plan = make(40)
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
def test_stopped_and_resumed_is_the_same_study(make, sampler, cut):
    whole, parts = make(66, **of(sampler)), make(66, "b", **of(sampler))
    result, _ = run(whole)
    asked = iter(range(1000))
    with suppress(InfeasibleError):
        run(parts, stop=lambda: next(asked) >= cut)
    assert len(study(parts)) == cut
    resumed, _ = run(parts)
    assert study(parts) == study(whole)
    assert resumed == result


def test_fewer_trials_first_and_more_later_is_the_same_study(make):
    whole, parts = make(30), make(30, "b")
    run(whole)
    for trials in (5, 12, 30):
        run(dataclasses.replace(parts, trials=trials))
    assert study(parts) == study(whole)


def test_a_finished_sweep_evaluates_nothing_again(make):
    first, _ = run(make(16))
    again, sweep = run(make(16))
    assert again == first
    assert sweep.assessor.asked == []


def test_a_torn_last_line_of_a_killed_run_is_dropped(make):
    whole, torn = make(20), make(20, "b")
    run(whole)
    run(dataclasses.replace(torn, trials=13))
    journal = torn.place.storage
    journal.write_bytes(journal.read_bytes()[:-40])
    run(torn)
    assert study(torn) == study(whole)


def test_another_sweep_in_the_same_study_is_refused(make):
    run(make(8))
    for other in (
        {"seed": 2},
        {"objectives": (metric("throughput"),)},
        {"limits": {"power_w": 301.0}},
        {"sampler": Sampler.RANDOM},
    ):
        with pytest.raises(InputError, match="other objectives, sampler, seed, task, budgets or space"):
            run(make(8, **other))
    with pytest.raises(InputError, match="holds 8 trials; add --resume"):
        run(make(16, resume=False))


def test_workers_change_nothing(make):
    alone, together = make(24), make(24, "b", workers=2)
    result, _ = run(alone)
    assert run(together)[0] == result
    assert study(together) == study(alone)


def test_a_worker_that_dies_is_told_in_one_sentence_and_the_study_goes_on(make):
    plan, whole = make(16, workers=2), make(16, "b")
    with pytest.raises(WorkerLostError, match=r"died \(exit code 7\).*--resume"):
        run(plan, kind=Doomed)
    run(dataclasses.replace(plan, workers=1))
    run(whole)
    assert study(plan) == study(whole)


def test_same_seed_same_study_in_another_process(make, tmp_path):
    plan = make(20)
    run(plan)
    code = (
        "import sys, pathlib, pickle, dataclasses; sys.path[:0] = sys.argv[1:3]; import test_sweep as t;"
        "plan = pickle.loads(pathlib.Path(sys.argv[3]).read_bytes());"
        "plan = dataclasses.replace(plan, place=t.Place(pathlib.Path(sys.argv[4])));"
        "t.run(plan)"
    )
    here = Path(__file__).parent
    (tmp_path / "plan").write_bytes(packed(make(20)))
    for hash_seed in ("1", "2"):
        journal = tmp_path / f"{hash_seed}.journal"
        arguments = [str(here), str(here.parent), str(tmp_path / "plan"), str(journal)]
        environment = {"PYTHONHASHSEED": hash_seed, "HOME": os.environ.get("HOME", "/")}
        subprocess.run([sys.executable, "-c", code, *arguments], env=environment, check=True)
        assert study(dataclasses.replace(plan, place=Place(journal))) == study(plan)


def database(tmp_path, kind):
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'sweeps.db'}"
    pytest.importorskip("psycopg")
    return os.environ.get(POSTGRES) or pytest.skip(f"no {POSTGRES}")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_keeps_the_same_study(make, tmp_path, kind):
    url, name = database(tmp_path, kind), f"sweep-{os.getpid()}"
    kept, journal = make(12, place=Place(url, name)), make(12, "b")
    run(dataclasses.replace(kept, trials=5))
    result, _ = run(kept)
    assert run(journal)[0] == result
    assert study(kept) == study(journal)
    assert run(make(4, place=Place(url, f"{name}-other")))[0].trials == 4


def test_optuna_reads_the_study_as_its_own(make):
    result, _ = run(make(40))
    found = load(make(40))
    assert found.metric_names == ["throughput", "tdp"]
    assert [d.name for d in found.directions] == ["MAXIMIZE", "MINIMIZE"]
    ids = {t.user_attrs["id"] for t in found.best_trials}
    assert ids == {row["id"] for row in result.frontier}
    for trial in found.get_trials():
        assert set(trial.constraints) == {"power", "reticle", "shoreline", "memory"}
        assert json.loads(json.dumps(trial.user_attrs)) == trial.user_attrs
        assert trial.values[1] == trial.user_attrs["tdp_w"]


def test_budgets_nothing_keeps_are_told_before_any_trial(make):
    with pytest.raises(InfeasibleError, match="keeps the budgets") as caught:
        run(make(8, limits={"power_w": 1.0}))
    assert caught.value.shortfalls[0].what == "power"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("nonsense", "not a database URL"),
        ("sqlite:////no/such/folder/x.db", "cannot be opened"),
        ("mysql://host/name", "driver that is not installed"),
    ],
)
def test_a_storage_that_cannot_be_used_is_told_in_one_sentence(make, url, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        run(make(8, place=Place(url)))
    assert "\n" not in str(caught.value)


def test_a_password_is_never_shown():
    assert "secret" not in without_password("postgresql://me:secret@host/name")
    assert "secret" not in str(Place("postgresql://me:secret@host/name", "x"))


def test_a_missing_package_is_told_with_the_extra_that_brings_it(make, monkeypatch):
    monkeypatch.setattr("phaze.explore.sampling.samplers.find_spec", lambda name: None)
    for sampler in (Sampler.GP, Sampler.CMAES):
        with pytest.raises(InputError, match=rf"pip install 'phaze-dse\[{sampler}\]'"):
            run(make(8, sampler=sampler, objectives=(metric("throughput"),)))
    monkeypatch.undo()
    pytest.importorskip("cmaes")
    with pytest.raises(InputError, match="takes one objective"):
        run(make(8, sampler=Sampler.CMAES))


def test_figures_are_those_of_the_whole_design(make):
    plan = make(8, limits={"power_w": 400.0})
    sweep = Sweep(plan, Silent())
    result = sweep.run()
    builder = DesignBuilder(plan.task)
    for row in result.frontier[:2]:
        design = sweep.design(row)
        expected = builder.best(
            sweep.assessor.candidates.architecture(row["candidate"]), Effort(lambda: 60.0)
        )
        assert design == expected
        done = next(iter(design.workloads.values()))
        assert row["id"] == design.id
        assert row["throughput_samples_per_s"] == done.throughput_samples_per_s
        assert row["energy_per_sample_j"] == pytest.approx(done.energy_per_iteration_j / 8)
        assert (row["memory_bytes"], row["mfu"]) == (done.memory_bytes, done.mfu)
        assert (row["tdp_w"], row["area_mm2"]) == (design.tdp_w, design.area_mm2)
        assert {name: row[name] for name in design.architecture} == dict(design.architecture)


def test_what_does_not_fit_in_memory_is_missed_by_a_share(make):
    space = dataclasses.replace(parse_space(SPACE, "small.yaml"), hbm_capacities_bytes=(2.0**25, 2.0**35))
    plan = make(8, candidates=Candidates(space, Budgets()))
    result = Sweep(plan, Silent()).run()
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
