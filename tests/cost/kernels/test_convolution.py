"""The law of convolutions: sizes read from work, hand-worked algorithms, physical limits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.convolutions import (
    ConvolutionLaw,
    convolution_chip,
    convolutions,
    convolutions_s,
    padded_product,
)
from phaze.cost.kernels.fitted_constants import fitted_constants, law_of
from phaze.cost.kernels.kernel_laws import Shape, kernels_s, shape_of
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.hardware_fields import field_table
from phaze.validation.measured.single_operators import convolution, product
from phaze.workload.work import Format, Role

TABLE = to_table([load_architecture("p100")])
CHIP = replace(convolution_chip(TABLE), memory_bytes_per_s=1e30)
PEAK = CHIP.vector_flop_per_s
LAW = law_of(ConvolutionLaw, "convolution.yaml", "pascal")
ROLES = st.sampled_from(Role)
# nothing lost: what is left are tiles, waves and multiplications
IDEAL = ConvolutionLaw(
    efficiency=1.0,
    patch_efficiency=1e-9,
    transformed_efficiency=1e-9,
    direct_efficiency=1e-9,
    input_gradient=1.0,
    weight_gradient=1.0,
    tensor_share=1.0,
    step_waste=1.0,
    full_elements=1.0,
    occupancy_power=0.0,
    fill_k=0.0,
    patch_fill_k=0.0,
    memory_efficiency=1.0,
    transform_share=0.0,
    overlap=0.0,
    launch_s=0.0,
    kernel_s=1.0,
)


def layer(batch, channels, filters, side, kernel=3, stride=1, role=Role.FORWARD, groups=1, **how):
    after = -(-side // stride)
    how = {"element_bytes": 4, "operands": Format.FP32, "groups": groups} | how
    filter_ = (filters, (kernel, kernel), (stride, stride))
    return convolution((batch, channels, (side, side)), filter_, (after, after), role, **how)


def seconds(*works, law=LAW, chip=CHIP, table=TABLE):
    return convolutions_s(convolutions(works, table), chip, law)


def test_all_passes_of_a_layer_have_the_same_maps():
    rows = convolutions([layer(4, 6, 10, 32, stride=2, groups=2, role=role) for role in Role], TABLE)
    sizes = {name: getattr(rows.maps, name) for name in rows.maps.__slots__}
    expected = {"groups": 2, "batch": 4, "channels": 3, "filters": 5, "taps": 9, "steps": 4}
    assert {name: set(sizes[name]) for name in expected} == {name: {size} for name, size in expected.items()}
    assert set(sizes["inputs"]) == {32 * 32}
    assert set(sizes["wide_out"]) == {16}
    assert set(rows.map_bytes) == {4.0 * 4 * 6 * 32 * 32}


def test_a_point_convolution_is_waves_of_tiles():
    # 7168 pixels are 56 rows of 128: with 32 filters one block on each multiprocessor, with 33 two
    exact, more = seconds(*(layer(7, 512, n, 32, kernel=1) for n in (32, 33)), law=IDEAL)
    assert exact == pytest.approx(2 * 7168 * 512 * 32 / PEAK)
    assert more == pytest.approx(2 * exact)


def test_steps_waste_products_of_the_gradient_that_gathers():
    work = layer(56, 64, 64, 32, kernel=1, stride=2, role=Role.INPUT_GRADIENT)
    skipped, wasted = (seconds(work, law=replace(IDEAL, step_waste=waste))[0] for waste in (0.0, 1.0))
    assert wasted == pytest.approx(4 * skipped)


def test_the_gradient_of_weights_cuts_its_contraction():
    # one tile of 128 x 64 outputs over 57344 pixels: 64 blocks in two waves instead of one block
    work = layer(56, 128, 64, 32, kernel=1, role=Role.WEIGHT_GRADIENT)
    cut, whole = seconds(work, law=replace(IDEAL, kernel_s=0.0)), 2 * 57344 * 128 * 64 / (PEAK / 56)
    assert cut == pytest.approx(whole / 64 * 2, rel=0.3)


@pytest.mark.parametrize(("name", "saved"), [("patch_efficiency", 2.25), ("transformed_efficiency", 4.0)])
def test_winograd_saves_multiplications(name, saved):
    direct = 2 * 28 * 32 * 32 * 512 * 512 * 9 / PEAK
    fast = replace(IDEAL, efficiency=1e-9, kernel_s=0.0, **{name: 1.0})
    work = layer(28, 512, 512, 32)
    assert seconds(work, law=fast)[0] == pytest.approx(direct / saved, rel=0.05)


@pytest.mark.parametrize("other", [{"kernel": 5}, {"stride": 2}])
def test_winograd_is_for_small_windows_without_steps(other):
    rows = convolutions([layer(8, 64, 64, 32), layer(8, 64, 64, 32, **other)], TABLE)
    assert rows.winograd.tolist() == [True, False]


def test_tensor_cores_take_aligned_channels_only():
    table = to_table([load_architecture("v100")])
    works = [layer(32, n, 64, 56, element_bytes=2, operands=Format.FP16) for n in (64, 63)]
    rows = convolutions(works, table)
    assert rows.tensor_cores.tolist() == [True, False]
    assert rows.channels.tolist() == [64, 64]
    fast, slow = seconds(*works, chip=convolution_chip(table), table=table)
    assert slow > 2 * fast


def test_groups_are_computed_directly_where_tiles_would_be_empty():
    (many,) = seconds(layer(32, 256, 256, 28, groups=256))
    (tiles,) = seconds(layer(32, 256, 256, 28, groups=256), law=replace(LAW, direct_efficiency=1e-9))
    assert many < tiles


@given(ROLES, st.integers(1, 64), st.integers(1, 512), st.integers(1, 512), st.integers(3, 64))
def test_never_faster_than_memory_or_winograd(role, batch, channels, filters, side):
    work, chip = layer(batch, channels, filters, side, role=role), convolution_chip(TABLE)
    (found,) = seconds(work, chip=chip)
    assert found > work.macs * 2 / 4 / PEAK
    assert found > (work.moved_bytes - work.gemms[0].c_bytes) / chip.memory_bytes_per_s


@given(ROLES, st.integers(1, 32), st.integers(1, 256), st.integers(1, 256), st.integers(3, 32))
def test_more_samples_never_take_less(role, batch, channels, filters, side):
    few, many = (layer(n, channels, filters, side, role=role) for n in (batch, batch + 3))
    assert seconds(many)[0] >= seconds(few)[0] * (1 - 1e-12)


def test_families_with_constants_are_choices_of_the_field():
    laws = fitted_constants(ConvolutionLaw, "convolution.yaml")
    assert {"generic", "maxwell", "pascal", "volta", "turing", "vega"} == set(laws)
    assert set(laws) <= set(field_table()["family"].choices)


def test_kernels_are_costed_by_the_law_of_convolutions():
    work = layer(8, 64, 64, 56)
    assert shape_of(work) is Shape.CONVOLUTION
    assert (
        kernels_s((work,), TABLE, Fidelity.CALIBRATED)[0, 0] == seconds(work, chip=convolution_chip(TABLE))[0]
    )
    assert np.isnan(kernels_s((work,), to_table([load_architecture("tpuv3")]), Fidelity.CALIBRATED)).all()


def test_other_products_are_no_convolutions():
    with pytest.raises(ValueError, match=r"\(8 x 16\) \(16 x 32\) is no convolution"):
        convolutions([product(1, 8, 16, 32)], TABLE)


@pytest.mark.parametrize(
    ("role", "sides"),
    [
        (Role.FORWARD, (4 * 16 * 16, 49 * 8, 16)),
        (Role.INPUT_GRADIENT, (4 * 16 * 16, 16, 49 * 8)),
        (Role.WEIGHT_GRADIENT, (49 * 8, 4 * 16 * 16, 16)),
    ],
)
def test_three_channels_are_padded_to_eight_on_tensor_cores(role, sides):
    gemm = padded_product(layer(4, 3, 10, 32, kernel=7, stride=2, role=role).gemms[0])
    assert (gemm.m, gemm.k, gemm.n) == sides


def test_products_serve_convolutions_of_16_bits_only_where_the_library_has_them():
    a100, t4 = (to_table([load_architecture(name)]) for name in ("a100", "t4"))
    half = layer(32, 3, 64, 224, kernel=7, stride=2, element_bytes=2, operands=Format.FP16)
    full = layer(32, 3, 64, 224, kernel=7, stride=2)
    generic = law_of(ConvolutionLaw, "convolution.yaml", "generic")
    assert generic.as_products
    for table, work, same in ((a100, half, False), (a100, full, True), (t4, half, True)):
        family = "turing" if table is t4 else "ampere"
        law = law_of(ConvolutionLaw, "convolution.yaml", family)
        alone = convolutions_s(convolutions([work], table), convolution_chip(table), law)[0]
        found = kernels_s([work], table, Fidelity.CALIBRATED)[0, 0]
        assert (found == alone) if same else (found < 0.5 * alone)
