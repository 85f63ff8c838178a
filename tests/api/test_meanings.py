"""Whatever the command line offers or prints, `dse explain` knows it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import pytest

from phaze.api.meanings import is_known, meanings
from phaze.errors import InputError
from phaze.hardware.catalogue import Catalogue, packaged
from phaze.hardware.spaces.space_file import load_space
from phaze.inputs.options.options_by_verb import MODELS
from phaze.report import terminal
from phaze.report.terminal import design_tables
from phaze.workload.workload_library import builtin_names

OPTIONS = {name: option for model in MODELS.values() for name, (_, option) in model.described().items()}
OFFERED = {
    value.rstrip("=")
    for option in OPTIONS.values()
    if isinstance(option.offers, tuple)
    for value in option.offers
    if not value.isdecimal()
}
PACKAGED = {name for catalogue in Catalogue for name in packaged(catalogue)}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_is_known(name):
    (*_, found) = [entry for entry in meanings(name) if entry.text]
    assert found.text


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_every_value_that_an_option_offers_is_known(name):
    assert any(len(entry.text) > 20 for entry in meanings(name))


@pytest.mark.parametrize("name", sorted({*PACKAGED, *builtin_names()}))
def test_everything_that_is_packaged_tells_what_it_is(name):
    assert any(len(entry.text) > 15 for entry in meanings(name)), name


@pytest.mark.parametrize("name", ["default", "few-bits", "one-clock", "phaze", "precision", "wide"])
def test_the_name_of_every_design_is_told_in_words(name):
    """A name has all that distinguishes a design in its space, and every part of it means something."""
    space = load_space(name)
    for number in (0, space.size // 3, space.size - 1):
        told = space.architecture_id(number)
        (entry,) = meanings(told)
        assert entry.kind == "name of a design"
        for part in told.split("-"):
            assert is_known(part), part


def test_a_part_of_a_name_says_what_it_counts():
    assert meanings("vc1x512")[0].text == "1 vector core of 512 fp32 units."
    assert meanings("hbm2ex4")[0].text == "4 stacks of HBM2e."
    assert "4KiB in a cycle" in meanings("port4KiB")[0].text


def test_nonsense_is_refused_with_near_names():
    assert not is_known("frobnicate")
    with pytest.raises(InputError, match=r"nothing is called 'recip' \(did you mean .*recipe"):
        meanings("recip")


COMMANDS = (
    "plan --arch h100 --workload bert-base --devices 64 --failures llama3-2024 --noise-scale 1000",
    "plan serving --arch h100 --workload llama2-7b --devices 2 --rate 1 --simulate 200",
    "compare --arch h100 --arch a100 --workload bert-base --devices 8",
    "evaluate --arch h100 --workload bert-base --devices 8",
    "whatif failures --arch h100 --workload bert-base --devices 64",
    "whatif bubbles --arch h100 --workload gpt2-xl --devices 16 --pipeline-parallel 4 --fill bert-base",
    "whatif colocate --arch h100 --workload bert-base --global-batch 16 --microbatch 16 --beside resnet50",
    "whatif --arch h100 --workload bert-base --vary devices=8,16",
    "networks choose hgx-h100 --devices 16 --constants hopper",
    "archs",
    "workloads",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_heading_and_every_row_is_known(command, dse, monkeypatch):
    """As a user reads them: a word of a heading, or before a figure, can be asked about."""
    tables = []

    def recorded(title, *columns):
        tables.append(make(title, *columns))
        return tables[-1]

    make = design_tables.plain_table
    for module in walk_packages(terminal.__path__, f"{terminal.__name__}."):
        loaded = import_module(module.name)
        if hasattr(loaded, "plain_table"):
            monkeypatch.setattr(loaded, "plain_table", recorded)
    code, out, err = dse(*command.split())
    assert (code, bool(out)) == (0, True), err
    words = set()
    for table in tables:
        shown = [c.header for c in table.columns] if table.show_header else table.columns[0].cells
        words |= {" ".join(str(word).split()) for word in shown}
    named = {*PACKAGED, *builtin_names()}
    assert not [word for word in sorted(words - named - {""}) if not is_known(word)]
