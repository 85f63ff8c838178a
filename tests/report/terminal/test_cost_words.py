"""Money and carbon in tables: every part is told, in units that say what they are of, with what is not counted."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from phaze.explore.documents.result_document import SampleCost, TrainingRun
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.economics.cluster_rates import cluster_rates
from phaze.hardware.economics.economic_figures import Economics
from phaze.report.cost_words import UnitCost, cost_rows, counted, grouped_kg, grouped_usd
from phaze.report.terminal.question_tables import training_table


def parts(**given):
    """Money and carbon of an hour of eight H100, by part."""
    economics = Economics().changed(**given)
    chip = to_table([load_architecture("h100")])
    rates = cluster_rates(chip, np.array([814.0]), np.array([700.0]), 8, load_network(), economics)
    spent = (each.parts(3600.0, 1e7) for each in (rates.usd, rates.kg, rates.joules))
    return [{name: float(part[0]) for name, part in each.items()} for each in spent]


def sample_cost(tokens, **given):
    usd, kg, site = parts(**given)
    return SampleCost(
        cost_per_sample_usd=sum(usd.values()),
        cost_parts_usd=usd,
        carbon_per_sample_kg=sum(kg.values()),
        carbon_parts_kg=kg,
        energy_per_sample_j=sum(site.values()),
        energy_parts_j=site,
        tokens=tokens,
        chip_usd=3300,
        device_usd=25_000,
    )


def training(**more):
    base = {
        "samples": 1e6,
        "tokens": 2e9,
        "duration_s": 86400.0,
        "energy_j": 3.6e9,
        "facility_energy_j": 7.2e9,
        "electricity_usd": 160.0,
        "chips_usd": 40.0,
        "total_usd": 200.0,
        "chip_usd": 3300.0,
        "usd_per_kwh": 0.08,
        "power_usage_effectiveness": 1.1,
        "lifetime_s": 5 * 365.25 * 86400.0,
    }
    return TrainingRun(**base | more)


def printed(table):
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    return console.file.getvalue()


@pytest.mark.parametrize("given", [{}, {"seller_gross_margin": 0.5}, {"rent_usd_per_device_hour": 2.5}])
def test_groups_leave_no_part_out(given):
    usd, kg, _ = parts(**given)
    assert sum(grouped_usd(usd).values()) == pytest.approx(sum(usd.values()))
    assert sum(grouped_kg(kg).values()) == pytest.approx(sum(kg.values()))
    assert ("margin of their seller" in grouped_usd(usd)) == ("seller_gross_margin" in given)


def test_samples_with_tokens_are_told_per_million_of_them():
    told = UnitCost.of(sample_cost(2048))
    assert told.unit == "million tokens"
    assert told.usd == pytest.approx(sample_cost(2048).cost_per_sample_usd * 1e6 / 2048)
    assert cost_rows(sample_cost(2048))[1][0] == "carbon per million tokens"


def test_samples_without_tokens_are_told_by_the_thousand():
    cost = sample_cost(None)
    assert UnitCost.of(cost).usd == pytest.approx(1000 * cost.cost_per_sample_usd)
    assert cost_rows(cost)[0] == ("cost per 1,000 samples", f"{1000 * cost.cost_per_sample_usd:,.0f} USD")


def test_a_line_says_what_is_counted():
    assert "without staff and software" in counted(sample_cost(None))
    assert counted(sample_cost(None, rent_usd_per_device_hour=2.5)).startswith("Cost is rent alone")


def test_a_training_run_is_told_by_part():
    usd, kg, site = parts()
    run = training(
        total_usd=sum(usd.values()),
        cost_parts_usd=usd,
        carbon_kg=sum(kg.values()),
        carbon_parts_kg=kg,
        energy_parts_j=site,
        device_usd=25_000.0,
    )
    text = printed(training_table(run))
    for words in (
        "making the chips",
        "network",
        "interest",
        "kg CO2e",
        "25.0 kUSD with its system",
        "are not in it",
    ):
        assert words in " ".join(text.split())


def test_much_carbon_is_told_in_tonnes():
    text = printed(training_table(training(carbon_kg=63_400.0, carbon_parts_kg={"electricity": 63_400.0})))
    assert "carbon 63.4 t CO2e electricity 63.4 t CO2e" in " ".join(text.split())


def test_a_training_run_of_before_is_told_as_it_was():
    text = " ".join(printed(training_table(training())).split())
    assert "cost 200 USD making the chips 40.0 USD electricity 160 USD" in text
    assert "hosts, network, building and staff are not in it" in text
    assert "CO2e" not in text
