"""Parameters of a study: what the sampler sees of the axes of a space, and what it asks."""

from __future__ import annotations

import dataclasses

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution

from phaze.explore.evaluation.design_candidates import Candidates, SpaceLimits
from phaze.explore.request.explore_request import Budgets
from phaze.explore.sampling.candidate_scope import CandidateScope, number_of
from phaze.explore.sampling.space_parameters import parameters, suggested
from phaze.hardware.budgets import weigh, within_budget
from phaze.hardware.spaces.space_axis import Condition
from phaze.hardware.spaces.space_file import parse_space

HEAD = "schema_version: 1\nname: mine\n"
AXES = """
axes:
  - {fields: [tensor_cores], powers_of_two: [2, 16]}
  - {fields: [global_buffer_bytes], powers_of_two: [16MiB, 64MiB]}
  - {fields: [vector_cores], values: [2, 4, 6]}
  - {fields: [tensor_core_rows], values: [64, 96, 256]}
  - {fields: [tensor_core_columns], same_as: tensor_core_rows}
  - {fields: [node], values: [N5, N7]}
  - {fields: [simt], values: [true, false]}
  - {fields: [hbm_generation, hbm_stacks], values: [[HBM2e, 4], [HBM3, 4], [HBM3, 6]]}
  - {fields: [clock_hz], values: [1.2GHz, 1.4GHz], when: {node: [N5]}, otherwise: 1GHz}
hbm_capacities: [32GiB, 64GiB, 80GiB]
"""
LIMITED = (
    AXES
    + """
where: ["tensor_cores * tensor_core_rows <= 1024", "vector_cores != tensor_cores"]
area_filter: {limit: phaze-reference, floor: 0.3}
"""
)


def space_of(text):
    return parse_space(HEAD + text, "mine.yaml")


def asked(space, count=40, seed=0):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    trials = [study.ask() for _ in range(count)]
    return [(suggested(parameters(space), trial), trial) for trial in trials]


def test_each_axis_as_what_it_is():
    found = {p.name: p.distribution for p in parameters(space_of(AXES))}
    assert found == {
        "log2_tensor_cores": IntDistribution(1, 4),
        "log2_global_buffer_bytes": IntDistribution(24, 26),
        "vector_cores": IntDistribution(2, 6, step=2),
        "tensor_core_rows": IntDistribution(0, 2),
        "node": CategoricalDistribution(("N5", "N7")),
        "simt": CategoricalDistribution((True, False)),
        "hbm_generation+hbm_stacks": CategoricalDistribution(("HBM2e x 4", "HBM3 x 4", "HBM3 x 6")),
        "clock_hz": IntDistribution(1_200_000_000, 1_400_000_000, step=200_000_000),
        "hbm_capacity_bytes": IntDistribution(0, 2),
    }


def test_what_is_asked_is_an_option_of_every_axis():
    space = space_of(AXES)
    for fields, trial in asked(space):
        assert fields["tensor_cores"] == 2 ** trial.params["log2_tensor_cores"]
        assert fields["global_buffer_bytes"] == 2 ** trial.params["log2_global_buffer_bytes"]
        assert fields["vector_cores"] == trial.params["vector_cores"]
        assert (fields["hbm_generation"], fields["hbm_stacks"]) in space.axes[6].options
        assert fields["hbm_capacity_bytes"] in space.hbm_capacities_bytes


def test_a_conditional_axis_is_asked_only_where_it_varies():
    seen = set()
    for fields, trial in asked(space_of(AXES)):
        assert ("clock_hz" in trial.params) == (fields["node"] == "N5")
        assert fields["node"] == "N5" or fields["clock_hz"] == 1e9
        seen.add(fields["node"])
    assert seen == {"N5", "N7"}


def test_the_number_of_a_trial_is_that_of_its_hardware():
    scope = CandidateScope(Candidates(space_of(LIMITED), Budgets()))
    for fields, _ in asked(scope.candidates.space):
        architecture = scope.grid.architecture(number_of(scope.grid, fields))
        given = {name: value for name, value in fields.items() if value is not None}
        assert {name: architecture.fields[name] for name in given} == given
        assert architecture.fields["tensor_core_columns"] == fields["tensor_core_rows"]


@pytest.mark.parametrize(
    "limits", [{}, {"power_w": 250.0, "area_mm2": 250.0, "power_density_w_per_mm2": 1.2}]
)
def test_exactly_those_trials_are_allowed_that_the_space_and_the_budgets_keep(limits):
    budgets = Budgets(**limits)
    scope = CandidateScope(Candidates(space_of(LIMITED), budgets))
    points = scope.points([fields for fields, _ in asked(scope.candidates.space, 300)])
    table = scope.table([p.number for p in points])
    b = budgets
    over = weigh(table, b.power_w, b.area_mm2, b.tdp_margin, b.power_density_w_per_mm2).over
    expected = within_budget(over) & scope.candidates.space.keeps(table)
    assert [p.allowed for p in points] == expected.tolist()
    assert 0 < expected.sum() < len(points)
    for limit, mask in over.items():
        if limit.value in points[0].missed:
            assert [p.missed[limit.value] > 0 for p in points] == mask.tolist()


def test_a_limit_is_missed_by_a_share_of_itself():
    space = space_of(AXES + 'where: ["tensor_cores <= 4"]\n')
    table = Candidates(space, Budgets()).table(np.arange(3))
    table = table.replace(tensor_cores=np.array([2, 4, 16]))
    power = SpaceLimits(space, Budgets(power_w=100.0)).missed(table)["power"]
    doubled = SpaceLimits(space, Budgets(power_w=200.0)).missed(table)["power"]
    assert power + 1 == pytest.approx(2 * (doubled + 1))
    assert SpaceLimits(space, Budgets()).missed(table)["tensor_cores <= 4"].tolist() == [0.0, 0.0, 0.75]


def test_fixed_fields_are_not_sampled():
    space = dataclasses.replace(space_of(AXES), pins=(Condition("node", ("N7",)),))
    assert {fields["node"] for fields, _ in asked(space)} == {"N7"}
