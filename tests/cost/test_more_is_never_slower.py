"""More of anything a chip may have slows no kernel; what makes one faster takes area or power: on every template."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from cost_cases import NETWORK

from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.pass_energy import boosted
from phaze.errors import InputError
from phaze.hardware.architecture import list_architectures, load_architecture, to_table
from phaze.hardware.derived_figures import boost_clock_hz, peak_clock_hz
from phaze.hardware.hardware_fields import FieldKind, field_table
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import energy_constants, tdp_w
from phaze.hardware.spaces.space_file import parse_space
from phaze.validation.measured.single_operators import attention
from phaze.workload.workload_loader import load_workload

MODELS = ("resnet50", "bert-large", "mixtral-8x7b")
COUNTED = (
    *("tensor_cores", "vector_cores", "vector_core_alus", "int32_alus", "fp64_alus", "global_buffer_bytes"),
    *("local_buffer_bytes", "register_bytes", "hbm_capacity_bytes", "hbm_stacks", "n_dies"),
)
"""What a chip may have more of. Not its shapes: products leave more of a larger array empty."""
PAID = (
    "clock_hz",
    "hbm_bandwidth_bytes_per_s",
    "link_bandwidth_bytes_per_s",
    "global_buffer_bytes_per_cycle",
)
SHAPES = ("tensor_core_rows", "tensor_core_columns")
ON_DIE = ("global_buffer_on_die_bytes", "hbm_sites_on_die", "link_on_die_bytes_per_s", "enabled_fraction")
MULTIPROCESSORS = ("tensor_cores", "vector_cores")
_LISTED = ("phaze",)  # areas by a table of sizes, with no others
_TIMES = (1.25, 2)
CHIPS = [chip for chip in sorted(list_architectures()) if not chip.startswith(_LISTED)]


def test_every_number_of_a_chip_is_looked_at_or_no_choice_of_a_search():
    numbers = {
        name for name, field in field_table().items() if field.kind in (FieldKind.INTEGER, FieldKind.NUMBER)
    }
    facts = {name for name in numbers if field_table()[name].fact}
    assert numbers == {*COUNTED, *PAID, *SHAPES, *ON_DIE} | facts


def test_a_higher_peak_clock_takes_power_and_ends_at_the_nominal_voltage():
    """Kernels too short for the power limit run at it, at the voltage that goes with it."""
    chip = load_architecture("h100")
    table = to_table([chip.replace("x", peak_clock_hz=clock * 1e9) for clock in (1.83, 1.9, 1.98, 2.5)])
    np.testing.assert_allclose(peak_clock_hz(table), [1.83e9, 1.9e9, 1.98e9, 1.98e9])
    free = to_table(
        [chip.replace("x", nominal_clock_hz=3e9, peak_clock_hz=clock * 1e9) for clock in (1.83, 2.5)]
    )
    assert boost_clock_hz(free).tolist() == [1.98e9, 2.5e9]
    cycle_j = energy_constants(boosted(free)).alu_cycle_j
    assert cycle_j[1] > cycle_j[0]


@pytest.mark.parametrize("field", ["peak_clock_hz", "nominal_clock_hz", "fp8_rate"])
def test_a_space_cannot_choose_what_costs_nothing(field):
    text = f"schema_version: 1\nname: s\nbase: h100\naxes: [{{fields: [{field}], values: [1, 2]}}]\n"
    with pytest.raises(InputError, match=f"{field} costs neither area nor power"):
        parse_space(text, "s")


def test_at_least_as_many_kinds_of_operators_as_a_training_step_has():
    assert {work.kind for work in works()} >= {
        "matmul",
        "conv",
        "attention",
        "norm",
        "softmax",
        "loss",
        "embedding",
    }


@pytest.mark.parametrize("name", CHIPS)
def test_more_of_anything_slows_no_known_chip_and_what_speeds_it_up_costs_area_or_power(name):
    chip = load_architecture(name)
    changes = [{field: times} for field in (*COUNTED, *PAID) for times in _TIMES]
    if chip.value("simt"):
        changes += [dict.fromkeys(MULTIPROCESSORS, times) for times in _TIMES]
    table = to_table([chip, *(more for change in changes if (more := _more(chip, change)) is not None)])
    told = [str(change) for change in changes if _more(chip, change) is not None]
    seconds = CostModel(table, NETWORK, Fidelity.ANALYTIC).fastest_s(works(), np.arange(len(table)))
    watts, area = tdp_w(table), area_mm2(table)
    for i, change in enumerate(told, start=1):
        slower = np.flatnonzero(seconds[i] > seconds[0] * (1 + 1e-9))
        assert not len(slower), (change, works()[slower[0]].name)
        faster = (seconds[i] < seconds[0] * (1 - 1e-9)).any()
        assert not faster or watts[i] > watts[0] or area[i] > area[0], change


def _more(chip, change):
    """The chip with more of some fields; None where it has none of one, or would have no more of it."""
    own = {field: chip.value(field) for field in change}
    more = {field: times * (own[field] or 0) for field, times in change.items()}
    whole = all(
        value and (not isinstance(own[field], int) or value == int(value)) for field, value in more.items()
    )
    return chip.replace("more", **more) if whole else None


@cache
def works():
    """Operators of training steps of the models, and attention on caches; each once."""
    layers = [layer for model in MODELS for layer in load_workload(model).chain(4, 1).layers]
    passes = [p for layer in layers for p in (layer.forward, layer.backward) if p is not None]
    trained = [work for p in passes for work in p.works if work.link is None]
    return tuple(dict.fromkeys(trained))


@pytest.mark.parametrize("name", [chip for chip in CHIPS if load_architecture(chip).value("simt")])
def test_more_multiprocessors_serve_most_caches_faster(name):
    """The library cuts caches to fill a chip, also where starting and combining pieces costs more than that saves."""
    chip, sizes = load_architecture(name), product((1, 8, 64, 256), (128, 512, 2048, 8192), (1, 4, 32))
    caches = [attention(batch, 1, keys, 32, shared, 128, causal=True) for batch, keys, shared in sizes]
    table = to_table([chip, _more(chip, dict.fromkeys(MULTIPROCESSORS, 2))])
    alone, more = CostModel(table, NETWORK, Fidelity.ANALYTIC).fastest_s(caches, np.arange(2))
    assert (more / alone).mean() < 1
    assert (more > 1.05 * alone).sum() <= 2
    assert (more <= 1.25 * alone).all()
