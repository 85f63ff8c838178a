"""Clocks of a space: one for every design, the highest it offers, none above what its node allows."""

import numpy as np
import pytest

from phaze.errors import InputError
from phaze.hardware.architecture import to_table
from phaze.hardware.derived_figures import nominal_clock_hz
from phaze.hardware.spaces.clock_steps import with_highest_clock, with_one_clock, without_overdrive
from phaze.hardware.spaces.space_file import load_space, parse_space
from phaze.inputs.options.search_options import BudgetOptions, SpaceOptions
from phaze.inputs.task_inputs import make_budgets, make_space, searched_space

DEFAULT, ONE_CLOCK = load_space("default"), load_space("one-clock")
(OFFERED,) = (sorted(hz for (hz,) in axis.options) for axis in DEFAULT.axes if axis.fields == ("clock_hz",))
HEAD = "schema_version: 1\nname: mine\naxes:\n  - {fields: [tensor_cores], values: [1, 2]}\n"
CONDITIONAL = (
    HEAD + "  - {fields: [clock_hz], values: [1GHz, 2GHz], when: {tensor_cores: [2]}, otherwise: 3GHz}\n"
)


def space_of(text):
    return parse_space(text, "mine.yaml")


def clocks(space):
    return sorted(set(space.table(slice(0, 64))["clock_hz"].tolist()))


@pytest.mark.parametrize("hz", [1.05e9, 1.2e9])
def test_a_clock_that_is_asked_for_is_that_of_every_design(hz):
    held = make_space(SpaceOptions(clock=f"{hz / 1e9}GHz"))
    assert held == with_one_clock(DEFAULT, hz, "--clock")
    assert (held.size, held.axes) == (ONE_CLOCK.size, ONE_CLOCK.axes)
    assert clocks(held) == [hz] == clocks(make_space(SpaceOptions(space="one-clock", clock=hz)))


def test_a_fixed_clock_is_one_of_the_space_and_leaves_the_same_designs():
    held = make_space(SpaceOptions(fix=["clock_hz=700MHz"]))
    asked = make_space(SpaceOptions(clock="700MHz"))
    rows = np.arange(0, held.size, 9973)
    assert held.size == asked.size
    other = asked.table(rows)
    for name, column in held.table(rows).columns.items():
        np.testing.assert_array_equal(column, other[name])
    with pytest.raises(InputError, match="no clock_hz = 1200MHz; it offers 500MHz"):
        make_space(SpaceOptions(fix=["clock_hz=1.2GHz"]))


@pytest.mark.parametrize(
    ("option", "value", "field"), [("clock", "1GHz", "clock_hz=1GHz"), ("node", "N5", "node = N5")]
)
def test_a_field_is_held_once(option, value, field):
    with pytest.raises(InputError, match=f"--{option} and --fix .* say the same"):
        make_space(SpaceOptions(fix=["tensor_cores=8", field], **{option: value}))


def test_lowered_clocks_begin_at_the_highest():
    budgets = make_budgets(BudgetOptions(power="400W", dvfs=True))
    space = searched_space(SpaceOptions(), budgets)
    assert space.axes == ONE_CLOCK.axes
    assert clocks(space) == [max(OFFERED)]
    assert searched_space(SpaceOptions(space="one-clock"), budgets) == ONE_CLOCK
    assert clocks(searched_space(SpaceOptions(fix=["clock_hz=700MHz"]), budgets)) == [0.7e9]
    assert clocks(searched_space(SpaceOptions(clock="1.4GHz"), budgets)) == [1.4e9]
    assert clocks(with_highest_clock(space_of(CONDITIONAL), "--dvfs")) == [3e9]


@pytest.mark.parametrize("how", [{"node": "n28"}, {"fix": ["node=N28"]}])
def test_another_node_keeps_the_clocks_that_its_voltage_allows(how):
    space = make_space(SpaceOptions(**how))
    nominal = float(nominal_clock_hz(to_table([space.base]))[0])
    kept = [hz for hz in OFFERED if hz <= nominal]
    assert 0 < len(kept) < len(OFFERED)
    assert clocks(space) == kept
    assert clocks(make_space(SpaceOptions(node="N5"))) == OFFERED
    assert clocks(make_space(SpaceOptions(clock="1.2GHz", **how))) == [
        1.2e9
    ]  # what is asked for is as it is asked for


def test_a_space_of_clocks_that_its_own_node_does_not_allow_stays():
    text = HEAD + "  - {fields: [clock_hz], values: [2GHz, 3GHz]}\n"
    assert clocks(make_space(SpaceOptions(space=space_of(text)))) == [2e9, 3e9]
    assert without_overdrive(space_of(text)) == space_of(text)


@pytest.mark.parametrize(
    ("axes", "names"),
    [
        ("  - {fields: [precision, clock_hz], values: [[bf16, 1GHz], [bf16, 2GHz]]}\n", "precision"),
        (
            "  - {fields: [clock_hz], values: [1GHz, 2GHz]}\n"
            "  - {fields: [vector_cores], values: [1, 2], when: {clock_hz: [1GHz]}}\n",
            "vector_cores",
        ),
        (
            "  - {fields: [clock_hz], values: [1GHz]}\n  - {fields: [link_bandwidth_bytes_per_s], same_as: clock_hz}\n",
            "link_bandwidth_bytes_per_s",
        ),
    ],
    ids=["together", "a condition", "a tie"],
)
def test_clocks_that_go_with_other_fields_are_not_replaced(axes, names):
    space = space_of(HEAD + axes)
    with pytest.raises(
        InputError, match=f"--clock: space mine varies clock_hz together with {names}; hold one"
    ):
        with_one_clock(space, 1e9, "--clock")
    with pytest.raises(InputError, match=names):
        with_highest_clock(space, "--dvfs")
