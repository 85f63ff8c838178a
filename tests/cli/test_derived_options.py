"""Options of commands that are derived from models."""

from __future__ import annotations

import ast
import inspect
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import typer

import phaze.api
from phaze.api.python_arguments import meaning
from phaze.cli import main as cli
from phaze.cli.derived_options import takes
from phaze.cli.main import app
from phaze.cli.manual.python_stub import stub
from phaze.errors import InputError
from phaze.inputs.option_reading import read, taken
from phaze.inputs.options import offered_values
from phaze.inputs.options.option_model import Effect
from phaze.inputs.options.options_by_verb import MODELS
from phaze.inputs.options.plan_options import PlanOptions
from phaze.inputs.options.search_options import RunOptions
from phaze.inputs.options.whatif_options import WhatIfOptions
from phaze.inputs.recorded.recorded_request import asked_before, recorded_options

PYTHON = {"run": "explore"} | {verb: verb for verb in ("sweep", "evaluate", "compare", "plan")}


def command_options(verb):
    """The options of a command by name, as the command line has them."""
    found = typer.main.get_command(app)
    for word in verb.split():
        found = found.commands[word]
    return {one.name: one for one in found.params}


@pytest.mark.parametrize("verb", MODELS)
def test_every_option_is_on_the_command_line_with_its_default(verb):
    options = command_options(verb)
    defaults = MODELS[verb].defaults()
    for name, (_, option) in MODELS[verb].described().items():
        assert options[name].default == defaults.get(name), name
        assert options[name].help == option.help
    assert options.keys() - MODELS[verb].described().keys() <= {"more", "help"}


@pytest.mark.parametrize("verb", PYTHON)
def test_every_option_is_an_argument_of_python_with_its_default_and_meaning(verb):
    function = getattr(phaze.api, PYTHON[verb])
    told, defaults = inspect.signature(function).parameters, MODELS[verb].defaults()
    names = {name for name, (_, option) in MODELS[verb].described().items() if option.in_python}
    assert names == told.keys() - {"progress"}
    for name in names:
        assert told[name].default == defaults.get(name, inspect.Parameter.empty), name
        assert told[name].annotation == taken(MODELS[verb], name)
        assert f"\n    {name}: {meaning(MODELS[verb], name)}" in function.__doc__


@pytest.mark.parametrize("verb", MODELS)
def test_a_manifest_holds_every_option_that_matters_and_gives_it_back(verb, tmp_path):
    model = MODELS[verb]
    options = read(model, dict.fromkeys(model.described().keys() - model.defaults().keys(), "given"))
    record = recorded_options(verb, options)
    assert record.options.keys() == {
        name for name, (_, option) in model.described().items() if option.effect is not Effect.NOTHING
    }
    defaults = model.defaults()
    assert all(value == defaults[name] for name, value in record.options.items() if name in defaults)
    assert asked_before(SimpleNamespace(asked=record), tmp_path, model) == options


@pytest.mark.parametrize("unset", [None, [], {}, ()])
def test_what_is_not_fixed_is_one_thing_however_it_is_said(unset):
    options = read(RunOptions, {"workload": "x", "fix": unset, "bind": unset, "weight": unset})
    assert options == RunOptions(workload=["x"])


def test_values_are_read_into_the_shape_of_the_model():
    options = read(
        RunOptions,
        {"workload": "x", "fix": {"a": 1}, "axes": ["tdp", "area"], "out": "here", "of another verb": 1},
    )
    assert options == RunOptions(workload=["x"], fix=["a=1"], axes="tdp,area", out=Path("here"))
    with pytest.raises(InputError, match="workload is not given"):
        read(RunOptions, {})


def test_the_stub_that_type_checkers_read_is_current():
    file = Path(phaze.api.verbs.__file__).with_suffix(".pyi")
    assert file.read_text(encoding="utf-8") == stub(), (
        "python -m phaze.cli.manual.python_stub > phaze/api/verbs.pyi"
    )


@pytest.mark.parametrize("name", PYTHON.values())
def test_the_stub_says_what_the_signature_says(name):
    (told,) = (one for one in ast.parse(stub()).body if getattr(one, "name", "") == name)
    function = getattr(phaze.api, name)
    mine = inspect.signature(function)
    given = [(one.arg, ast.unparse(one.annotation)) for one in [*told.args.args, *told.args.kwonlyargs]]
    assert given == [(one.name, one.annotation) for one in mine.parameters.values()]
    defaults = [ast.literal_eval(one) for one in told.args.kw_defaults]
    assert defaults == [one.default for one in mine.parameters.values() if one.kind is one.KEYWORD_ONLY]
    assert ast.unparse(told.returns) == mine.return_annotation == function.__annotations__["return"]
    assert pickle.loads(pickle.dumps(function)) is function


def test_a_command_is_given_its_model_and_what_it_takes_beside():
    given = []

    @takes(PlanOptions, may_lack=("arch", "workload"))
    def command(options: PlanOptions, more: int = 3) -> None:
        given.append((options, more))

    command(**PlanOptions(arch=None, workload=None, zero=1).values, more=4)
    ((options, more),) = given
    assert (options.zero, options.devices, more) == (1, offered_values.DEVICES, 4)
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


@pytest.mark.parametrize("verb", ["plan", "run", "cache", "spaces"])
def test_a_command_line_that_begins_with_a_verb_builds_that_verb_alone(verb):
    every, alone = typer.main.get_command(app), cli._commands_of([verb, "--json"])
    assert [*alone.commands] == [verb]
    assert alone.commands[verb].get_short_help_str() == every.commands[verb].get_short_help_str()
    assert [one.opts for one in alone.commands[verb].params] == [
        one.opts for one in every.commands[verb].params
    ]
    for words in ([], ["--help"], ["help", verb], ["nothing"]):
        assert cli._commands_of(words).commands.keys() == every.commands.keys()
