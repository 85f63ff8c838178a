"""Money and carbon: values by hand, published footprints and systems, parts that sum, and what grows with what."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.economics.cluster_rates import cluster_rates
from phaze.hardware.economics.economic_figures import YEAR_S, Economics, figures, shipped
from phaze.hardware.economics.embodied_carbon import carbon_per_area_kg_per_cm2, embodied_parts_kg
from phaze.hardware.hardware_fields import default_values, field_table
from phaze.inputs.economic_inputs import FIGURES
from phaze.inputs.options.task_options import EconomicOptions

NODES = field_table()["node"].choices
H100_MM2, B200_MM2 = np.array([814.0]), np.array([1600.0])


def package(**fields):
    return to_table([Architecture(name="any", fields={**default_values(), **fields})])


def rates(devices=1024, economics=None, tdp=400.0, area=600.0, **fields):
    return cluster_rates(
        package(**fields),
        np.array([area]),
        np.array([tdp]),
        devices,
        load_network(),
        economics or Economics(),
    )


def one(values):
    return {name: float(value[0]) for name, value in values.items()}


# -- carbon ----------------------------------------------------------------------------------------------------


def test_carbon_per_area_is_that_of_the_act_tables():
    # N7 in Taiwan: 0.642 x 2.15 + 0.35 + 0.5; N28 with fab electricity of ACT's paper, 0.583: 0.5247 + 0.175 + 0.5
    assert carbon_per_area_kg_per_cm2(package(node="N7"))[0] == pytest.approx(2.2303)
    paper = Economics().changed(fab_carbon_intensity_kg_per_kwh=0.583)
    assert carbon_per_area_kg_per_cm2(package(node="N28"), paper)[0] == pytest.approx(1.1997)


def test_a_die_pays_for_what_the_wafer_loses():
    # 100 mm2 at N7: 2.2303 x 706.858 cm2 over 571.712 dies of which 91.43 % are flawless.
    parts = one(embodied_parts_kg(package(node="N7", hbm_stacks=4), np.array([100.0])))
    assert parts["dies"] == pytest.approx(2.2303 * 706.858 / (571.712 * 0.914299), rel=1e-5)
    assert parts["packaging"] == pytest.approx(5 * 0.15)


def test_an_h100_and_a_b200_emit_what_nvidia_publishes():
    # HGX H100: 1,312 kg for eight, of which memory and module were taken from it; dies were not: 25 % are
    # integrated circuits. HGX B200: 0.50 instead of 0.66 g per exaFLOP at 2.3 times the throughput, 2,286 kg for
    # eight with 180 GB each; nothing was set by it.
    h100 = one(embodied_parts_kg(to_table([load_architecture("h100")]), H100_MM2))
    assert sum(h100.values()) == pytest.approx(1312 / 8, rel=0.03)
    assert h100["dies"] == pytest.approx(0.25 * 1312 / 8, rel=0.1)
    fields = {"n_dies": 2, "enabled_fraction": 0.9, "hbm_generation": "HBM3e", "hbm_stacks": 8}
    b200 = one(embodied_parts_kg(package(node="N4", hbm_capacity_bytes=180 * 2**30, **fields), B200_MM2))
    assert sum(b200.values()) == pytest.approx(1312 * 0.50 / 0.66 * 2.3 / 8, rel=0.03)


def test_an_a100_emits_about_what_life_cycle_assessments_say():
    # A100 PCIe 40 GB: 181 kg from cradle to gate (parametric model for ADEME, 2025).
    a100 = to_table([load_architecture("a100-80gb")])
    half = a100.replace(hbm_capacity_bytes=np.array([40.0 * 2**30]))
    assert sum(one(embodied_parts_kg(half, np.array([826.0]))).values()) == pytest.approx(181, rel=0.35)


# -- the system -------------------------------------------------------------------------------------------------


def test_a_network_costs_what_a_published_bill_says():
    # 1,024 devices at 400 Gb/s: 1,728,000 USD of switches and 2,621,440 of cables; 32,768: 92,160,000 and 124,518,400.
    # Adapters come with hosts there; direct links are not in that bill.
    alone = Economics().changed(
        scale_up_usd_per_gbyte_per_s=0, scale_up_cable_usd_per_gbyte_per_s=0, adapter_usd_per_gbyte_per_s=0
    )
    for devices, usd in ((1024, 1_728_000 + 2_621_440), (32_768, 92_160_000 + 124_518_400)):
        found = rates(devices, alone).usd.per_s["network"][0] * 5 * YEAR_S * 0.83
        assert found == pytest.approx(usd, rel=0.02)
    assert rates(8, alone).usd.per_s["network"][0] == 0.0


def test_an_hour_by_hand():
    e = Economics().changed(interest_per_year=0, maintenance_per_year=0, utilisation=1, lifetime_years=1)
    found = rates(8, e, node="N7")
    hour = one(found.usd.parts(3600.0, 8 * 400.0 * 3600.0))
    beside_w = 275 + 300 * 0.133  # the host, and NVSwitches for links of 300 GB/s; adapters reach nothing
    # (298 + 10.5) million over 100,000 chips, in one of 8,766 hours, eight devices
    assert hour["design"] == pytest.approx(8 * 3085 / 8766)
    assert hour["building"] == pytest.approx(8 * 10 * (400 + beside_w) / 12 / 8766)
    assert hour["electricity"] == pytest.approx(8 * (400 + beside_w) / 1000 * 1.1 * 0.08)
    assert hour["hosts"] == pytest.approx(8 * 2638 / 8766)
    assert hour["margin"] == hour["interest"] == hour["maintenance"] == 0.0
    carbon = one(found.kg.parts(3600.0, 8 * 400.0 * 3600.0))
    assert carbon["electricity"] == pytest.approx(8 * (400 + beside_w) / 1000 * 1.1 * 0.369)
    assert carbon["hosts"] == pytest.approx(8 * 312.5 / 8766)
    site = one(found.joules.parts(3600.0, 8 * 400.0 * 3600.0))
    assert sum(site.values()) == pytest.approx(8 * (400 + beside_w) * 1.1 * 3600)


def test_payments_with_interest_are_those_of_a_loan():
    # 1,000 at 8 % over five years: 250.46 a year (annuity tables), of which 200 are the straight line.
    e = Economics().changed(utilisation=1, building_usd_per_w=0, maintenance_per_year=0)
    found = rates(1, e)
    yearly = found.usd.per_s["interest"][0] * YEAR_S
    assert yearly == pytest.approx(found.capital_usd[0] * 0.05045645, rel=1e-6)


def test_a_seller_keeps_his_share_of_the_price():
    # NVIDIA's gross margin, 72.7 %: an H100 of 3,300 USD and its design for 12,000; two million chips: for 13,000.
    e = Economics().changed(seller_gross_margin=0.727, volume_chips=2e6)
    found = cluster_rates(
        to_table([load_architecture("h100")]), H100_MM2, np.array([700.0]), 8, load_network(), e
    )
    parts = one(found.usd.per_s)
    chip = sum(parts[name] for name in ("dies", "memory", "packaging", "bonding", "module", "design"))
    assert parts["margin"] / (chip + parts["margin"]) == pytest.approx(0.727)
    assert (chip + parts["margin"]) / 8 * 5 * YEAR_S * 0.83 == pytest.approx(13_120, rel=0.01)


def test_rent_stands_for_all_money_and_no_carbon():
    rented, owned = rates(1000, Economics().changed(rent_usd_per_device_hour=2.5)), rates(1000)
    assert one(rented.usd.parts(7200.0, 1e9)) == {"rent": pytest.approx(5000)}
    assert one(rented.kg.parts(7200.0, 1e9)) == one(owned.kg.parts(7200.0, 1e9))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(NODES),
    st.floats(20, 800),
    st.floats(50, 1500),
    st.integers(1, 70_000),
    st.floats(1e-6, 1e6),
    st.floats(1e-3, 1e12),
    st.floats(1.01, 3.0),
    st.sampled_from([None, 2.5]),
)
def test_parts_sum_and_everything_grows(node, area, tdp, devices, seconds, joules, more, rent):
    e = Economics().changed(rent_usd_per_device_hour=rent)
    small = rates(devices, e, tdp, area, node=node)
    for kind in ("usd", "kg", "joules"):
        spent = getattr(small, kind)
        parts = one(spent.parts(seconds, joules))
        total = spent.total(seconds, joules)[0]
        assert total == sum(parts.values())  # exactly, in their order
        assert all(part >= 0 for part in parts.values())
        assert spent.total(seconds * more, joules)[0] > total or kind == "joules"
        assert spent.total(seconds, joules * more)[0] >= total
        for other in (
            rates(devices, e, tdp * more, area, node=node),
            rates(devices, e, tdp, area * more, node=node),
        ):
            assert getattr(other, kind).total(seconds, joules)[0] >= total


# -- figures ----------------------------------------------------------------------------------------------------


def test_every_figure_has_a_source_and_estimates_say_so():
    told = list(shipped().scalars.items())
    told += [item for some in shipped().columns.values() for item in some.items()]
    for name, entry in told:
        assert entry.source, name
        assert entry.about, name
        if entry.confidence == "L":
            assert "estimate" in entry.source, name
    for field, some in shipped().columns.items():
        for column in some.values():
            assert field == "region" or set(column.values) == set(field_table()[field].choices)
    assert {figure.name for figure in figures()} == {name for name, _ in told}


def test_shipped_figures_are_within_their_own_ranges():
    for name, scalar in shipped().scalars.items():
        if scalar.value is not None:
            assert scalar.within(scalar.value, name) == scalar.value
    for some in shipped().columns.values():
        for name, column in some.items():
            assert all(column.within(value, name) == value for value in column.values.values())


def test_a_file_overrules_name_by_name(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("volume_chips: 50e3\nwafer_usd: {N5: 15000}\ncarbon_intensity_kg_per_kwh: France\n")
    own = Economics().after(file)
    assert own["volume_chips"] == 50_000
    assert own["carbon_intensity_kg_per_kwh"] == 0.057
    assert own.values("wafer_usd")[1] == {**shipped().columns["node"]["wafer_usd"].values, "N5": 15_000}
    assert own["host_w"] == Economics()["host_w"]
    assert set(own.given) == {"volume_chips", "wafer_usd", "carbon_intensity_kg_per_kwh"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("volume_chips: 0", "own.yaml: volume_chips: 0 must be at least 1"),
        ("host_usd: 0", "host_usd: 0 must be greater than zero"),
        ("utilisation: 1.2", "utilisation: 1.2 must be greater than zero and at most 1"),
        ("wafer_usd: {N5: -3}", "wafer_usd.N5: -3 must be greater than zero"),
        ("wafer_usd: {N4P: 3}", "wafer_usd: 'N4P' is not one of N28, N16"),
        ("wafer_usd: 3", r"wafer_usd: 3 is not a mapping of node to numbers, for instance \{N28: 2891\}"),
        ("wafer_price: 3", r"wafer_price: no such figure \(nearest: wafer_usd"),
        ("host_w: lots", "host_w: 'lots' is not a number"),
        ("host_w: true", "host_w: True is not a number"),
        ("carbon_intensity_kg_per_kwh: atlantis", "'atlantis' is neither a number nor one of world, india"),
        ("carbon_intensity_kg_per_kwh: -1", "-1 must be at least 0 and at most 10"),
        ("- 3", "not a mapping of figures"),
    ],
)
def test_a_file_with_a_fault_is_told_in_a_sentence(tmp_path, text, sentence):
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=sentence):
        Economics().after(file)


@pytest.mark.parametrize(("option", "figure"), FIGURES.items())
def test_help_tells_the_shipped_figure(option, figure):
    shown = EconomicOptions.described()[option][1].help
    value = shipped().scalars[figure].value
    if value is None:
        assert "default" not in shown
    else:
        told = float(re.search(r"default: ([\d,.]*\d)", shown)[1].replace(",", ""))
        assert told == value
