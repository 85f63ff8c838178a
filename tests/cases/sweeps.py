"""Sweeps whose evaluations are a formula, and what makes their studies."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import optuna

from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, Task
from phaze.explore.request.search_progress import SilentProgress
from phaze.explore.request.search_resources import ALONE
from phaze.explore.sampling.design_assessor import Assessor
from phaze.explore.sampling.optuna_sweep import Sweep, SweepPlan
from phaze.explore.sampling.study_record import StudyPlace
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import parse_space

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


@dataclass
class Chips(Assessor):
    """A closed-form answer instead of an evaluation: more cores are faster."""

    asked: list[int] = field(default_factory=list)

    def do(self, number):
        self.asked.append(number)
        table = self.candidates.table(np.array([number]))
        speed = float(table["tensor_cores"][0] * table["tensor_core_rows"][0] * table["hbm_stacks"][0])
        return {
            "throughput_samples_per_s": speed + float(table["vector_cores"][0]),
            "energy_per_sample_j": 1.0 + speed % 7,
            "memory_bytes": 1e9,
            "mfu": 0.5,
            "microbatch_size": 1,
            "tensor_parallel": 1,
            "recompute": "none",
            "memory_missed": -0.5,
        }


@dataclass
class ChipSweep(Sweep):
    kind: type = Chips

    @cached_property
    def assessor(self):
        return self.kind(self.plan.task, self._scope.grid)


def sweep_plan(workload, trials, journal, **changes):
    """A sweep of the small space that continues what it finds."""
    limits = changes.pop("limits", {"power_w": 300.0})
    plan = SweepPlan(
        task=Task(workload, 8, load_network(), 8),
        candidates=Candidates(parse_space(SPACE, "small.yaml"), Budgets(**limits)),
        objectives=(metric("throughput"), metric("tdp")),
        trials=trials,
        place=StudyPlace(journal),
        seed=1,
        resume=True,
    )
    return dataclasses.replace(plan, **changes)


def run(plan, stop=lambda: False, kind=Chips, resources=ALONE):
    sweep = ChipSweep(plan, SilentProgress(), stop, resources, kind=kind)
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
