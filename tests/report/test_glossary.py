from __future__ import annotations

import io

import pytest
from rich.console import Console

from phaze.explore.documents.result_document import Breakdown
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.silicon.die_area import area_parts_mm2
from phaze.hardware.silicon.package_power import power_parts_w
from phaze.report.glossary import explain
from phaze.report.plan_words import BYTES
from phaze.report.plan_words import TIMES as TIMES_IN_WORDS
from phaze.report.terminal import (
    beside_tables,
    design_tables,
    frontier_tables,
    question_tables,
    search_tables,
)
from phaze.report.terminal.design_tables import plain_table
from phaze.report.terminal.search_tables import print_result

TABLE = to_table([load_architecture("h100")])
TIMES = Breakdown.model_fields.keys() - {"parts"}
NAMES = {*area_parts_mm2(TABLE), *power_parts_w(TABLE), *TIMES, "roofline", "critical path"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_row_of_the_tables_is_explained(name):
    assert any(entry.kind == "word" for entry in explain(name)), name


def printed(document, monkeypatch):
    """Headings of columns, and names of rows in tables without headings, of the answer of dse run."""
    tables = []

    def recorded(title, *columns):
        tables.append(plain_table(title, *columns))
        return tables[-1]

    for module in (beside_tables, design_tables, frontier_tables, question_tables, search_tables):
        monkeypatch.setattr(module, "plain_table", recorded)
    print_result(document, Console(file=io.StringIO(), width=80))
    for table in tables:
        if table.show_header:
            yield from (str(column.header) for column in table.columns)
        else:
            yield from (str(cell) for cell in table.columns[0].cells)


def test_every_word_of_the_answer_is_explained(document, monkeypatch):
    """Whatever stands in a heading or before a figure, dse explain knows it."""
    words = {word.strip() for word in printed(document, monkeypatch)} - {"", "architecture"}
    assert len(words) > 35
    assert not [word for word in sorted(words) if not explain(word)]


@pytest.mark.parametrize("name", [*TIMES_IN_WORDS.values(), *BYTES.values(), "ZeRO", "regret", "elasticity"])
def test_causes_of_time_and_uses_of_memory_are_explained(name):
    assert any(entry.kind == "word" for entry in explain(name)), name


def test_a_phrase_is_explained_by_the_words_in_it_and_nonsense_is_not():
    assert [entry.name for entry in explain("largest peak memory of a device")] == ["peak_memory"]
    assert explain("wafre") == explain("no such thing") == ()


def test_figures_of_money_and_carbon_are_explained_with_their_source():
    (entry,) = (entry for entry in explain("bonding_yield") if entry.kind == "figure of --economics")
    assert entry.default == "0.99"
    assert "Chiplet Actuary" in entry.source
    (wafer,) = (entry for entry in explain("wafer_usd") if entry.kind == "figure of --economics")
    assert (wafer.unit, "N7 9346" in wafer.default) == ("USD", True)
