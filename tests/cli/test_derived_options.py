"""Options of commands that are derived from models."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest

from phaze.cli.derived_options import takes
from phaze.inputs import option_models
from phaze.inputs.option_models import Effect, PlanOptions, RunOptions, WhatIfOptions
from phaze.runs.store.run_record import FREE, NO_MATTER

MODELS = [
    getattr(option_models, f"{name}Options")
    for name in ("Run", "Sweep", "Evaluate", "Compare", "Plan", "WhatIf", "PlanServing")
]


def effects(model, effect):
    return {name for name, (_, option) in model.described().items() if option.effect is effect}


@pytest.mark.parametrize("model", MODELS)
def test_runs_keep_and_compare_what_the_models_say(model):
    assert effects(model, Effect.NOTHING) <= NO_MATTER
    assert effects(model, Effect.REACH) <= FREE - NO_MATTER
    assert not effects(model, Effect.ANSWER) & FREE


def test_a_command_is_given_its_model_and_what_it_takes_beside():
    given = []

    @takes(PlanOptions, may_lack=("arch", "workload"))
    def command(options: PlanOptions, more: int = 3) -> None:
        given.append((options, more))

    command(**PlanOptions(arch=None, workload=None, zero=1).values, more=4)
    ((options, more),) = given
    assert (options.zero, options.devices, more) == (1, option_models.DEVICES, 4)
    told = inspect.signature(command).parameters
    assert told["arch"].default is None
    assert get_args(told["zero"].annotation)[0] == int | None
    assert get_args(told["workload"].annotation)[0] == list[str] | None
    assert told["more"].annotation is int


def test_missing_values_are_at_their_defaults_and_others_left_alone():
    assert (
        WhatIfOptions.of(RunOptions(workload=["x"]).values | {"arch": "a100", "vary": "zero=0"}).zero is None
    )
    assert (
        RunOptions(workload=["x"], out="here", time_limit="1s").answering
        == RunOptions(workload=["x"]).answering
    )
