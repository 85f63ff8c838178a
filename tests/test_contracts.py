"""Contracts that other packages test with: each kind of member that breaks one fails in the test that is about it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from phaze.explore.documents.strategy_report import Stop
from phaze.explore.strategies.heuristic_searches import RandomSearch
from phaze.explore.strategies.search_strategy import report_search
from phaze.report.html_markup import Html, Section, paragraph
from phaze.testing.figure_contract import FigureContract, run_contents
from phaze.testing.front_end_contract import FrontEndContract
from phaze.testing.small_problem import DECODER, solved_problem
from phaze.testing.strategy_contract import StrategyContract
from phaze.workload.workload_loader import FRONT_ENDS, FrontEnd, LoadOptions


@dataclass
class Wrong:
    """A strategy that evaluates what it likes."""

    evaluated: object
    name: str = "wrong"
    seeded: bool = True
    calls: object = field(default_factory=itertools.count)

    def run(self, oracle, budget, seed, progress):
        oracle.evaluate(self.evaluated(next(self.calls), budget, seed))
        return report_search(self, oracle, seed, Stop.CONVERGED)


def test_a_strategy_that_takes_more_than_its_budget():
    with pytest.raises(AssertionError, match="evaluated 6 architectures of 5"):
        StrategyContract().test_keeps_the_budget_and_is_never_above_the_certified_optimum(
            Wrong(lambda *_: range(6)), solved_problem(), 5
        )


def test_a_strategy_that_answers_otherwise_every_time():
    with pytest.raises(AssertionError):
        StrategyContract().test_same_seed_same_evaluations(Wrong(lambda call, *_: [call]), solved_problem())


def test_a_strategy_that_has_a_seed_and_denies_it():
    with pytest.raises(AssertionError):
        StrategyContract().test_same_seed_same_evaluations(RandomSearch(seeded=False), solved_problem())


def test_a_strategy_that_has_no_end():
    with pytest.raises(AssertionError):
        StrategyContract().test_evaluates_nothing_once_time_is_over(Wrong(lambda *_: [0]), solved_problem())


@pytest.fixture
def source(tmp_path):
    (tmp_path / "tiny.yaml").write_text(DECODER)
    return str(tmp_path / "tiny.yaml")


def yaml_model(source, options):
    return FRONT_ENDS.find(".yaml").load(source, options)


def test_a_front_end_that_reads_anything(source):
    model = yaml_model(source, LoadOptions())
    with pytest.raises(pytest.fail.Exception):
        FrontEndContract().test_a_broken_file_is_an_error_that_names_it(
            FrontEnd(lambda *_: model), source, LoadOptions(), b"{"
        )


def test_a_front_end_that_ends_in_an_error_of_its_own(source):
    with pytest.raises(FileNotFoundError):
        FrontEndContract().test_a_missing_file_is_an_error_that_names_it(
            FrontEnd(lambda source, _: Path(source).read_text()), source, LoadOptions()
        )


def test_a_front_end_that_is_never_the_same(source):
    lengths = itertools.count(64)

    def load(source, options):
        return yaml_model(source, LoadOptions(sequence_length=next(lengths)))

    with pytest.raises(AssertionError):
        FrontEndContract().test_the_same_file_is_the_same_workload(FrontEnd(load), source, LoadOptions())


def of(body):
    """A figure of one section with that body."""
    return lambda contents: [Section("mine", "Mine", Html(body(contents)))]


@pytest.mark.parametrize(
    "markup",
    [
        '<script src="https://example.org/x.js"></script>',
        "<script>alert(1)</script>",
        '<p onclick="alert(1)">x</p>',
        '<a href="//example.org">x</a>',
        '<p style="background:url(https://example.org/x.png)">x</p>',
        "<iframe></iframe>",
    ],
)
def test_a_figure_with_something_from_elsewhere(markup):
    contents = run_contents()["searched"]
    with pytest.raises(AssertionError):
        FigureContract().test_has_nothing_from_elsewhere_and_no_script(of(lambda _: markup), contents)


@pytest.mark.parametrize("body", ["<p>x", "x</p>", "<b><i>x</b></i>"])
def test_a_figure_whose_tags_do_not_match(body):
    with pytest.raises(AssertionError):
        FigureContract().test_gives_sections_that_a_page_can_hold(
            of(lambda _: body), run_contents()["left out"]
        )


def test_a_figure_that_takes_a_name_for_markup():
    with pytest.raises(AssertionError):
        FigureContract().test_names_stay_names(of(lambda contents: contents.document.best.id))


def test_a_figure_that_escapes_it():
    FigureContract().test_names_stay_names(of(lambda contents: paragraph(contents.document.best.id)))
