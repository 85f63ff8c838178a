"""Convolutions as cuDNN and MIOpen run them, the fastest algorithm of each chosen by trial."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived_figures import product_flops_per_s
from phaze.validation.measured.measured_cases import Cases, Judged, Timer
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import Filters, Maps, Pair, convolution
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.kernels.vector_measurements import NOT_MODELLED
from phaze.workload.work import Format, Role

NOT_MEASURED = "pass not measured"

Layer = tuple[Maps, Filters, Pair]
"""A convolution: the maps before it, its filters, and height and width after it."""

_PASSES: Mapping[str, Role] = MappingProxyType(
    {
        "fwd_ms": Role.FORWARD,
        "bwd_input_ms": Role.INPUT_GRADIENT,
        "bwd_weight_ms": Role.WEIGHT_GRADIENT,
    }
)
# Kernels (height, width) of DeepBench's layers, which some of its sheets leave out: square by the padding,
# but for those here, by width, channels, filters and padding (github baidu-research/DeepBench, code/kernels).
_BY_PADDING: Mapping[int, Pair] = MappingProxyType({0: (1, 1), 1: (3, 3), 2: (5, 5), 3: (7, 7)})
_BY_LAYER: Mapping[tuple[int, int, int, int], Pair] = MappingProxyType(
    {
        (700, 1, 32, 0): (5, 20),
        (341, 32, 32, 0): (5, 10),
        (700, 1, 64, 1): (5, 5),
        (350, 64, 128, 1): (5, 5),
        (175, 128, 256, 1): (5, 5),
        (84, 256, 512, 1): (5, 5),
        (7, 2048, 512, 3): (1, 1),
    }
)

# NeuSight's small convolutions take 0.1 to 0.6 ms whatever their size, in proportion over chips to their peak rates;
# DeepBench's on the same chip take 0.035 ms. What is timed beside the kernels is not known; least
# mean |log(predicted / measured)| on P4, P100 and V100.
_NEUSIGHT_START_FLOP = 1.8e9


def neusight(columns: Columns) -> Judged:
    """Square fp32 convolutions of random sizes, forward (eager PyTorch, TF32 off)."""
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    names = ("batch", "in_ch", "out_ch", "kernel", "in_hw", "stride", "out_hw")
    sizes = [columns.numbers(name) for name in names]
    for row, device in enumerate(columns["device"]):
        chip = chip_of(device)
        if chip is None:
            cases.drop(NO_TEMPLATE)
            continue
        batch, channels, filters, kernel, side, stride, after = (int(size[row]) for size in sizes)
        maps = (batch, channels, (side, side))
        window = (filters, (kernel, kernel), (stride, stride))
        work = convolution(maps, window, (after, after), element_bytes=4, operands=Format.FP32)
        start_s = _NEUSIGHT_START_FLOP / _fp32_flop_per_s(chip)
        cases.keep(chip, work, float(latency[row]), Timer(lag_s=start_s))
    return cases.judge()


def deepbench(columns: Columns) -> Judged:
    """Layers of speech and vision networks, forward and both gradients (kernels of vendors' libraries)."""
    cases, layers = Cases(), _deepbench_layers(columns)
    times = [(role, columns.numbers(name) * 1e-3) for name, role in _PASSES.items()]
    for row, (device, dtype, layer) in enumerate(
        zip(columns["device"], columns["dtype"], layers, strict=True)
    ):
        chip, format_ = chip_of(device), _format(dtype)
        for role, latency in times:
            if chip is None or format_ is None or layer is None or np.isnan(latency[row]):
                cases.drop(_why_not(chip, format_, layer))
                continue
            element_bytes, operands = format_
            work = convolution(*layer, role, element_bytes=element_bytes, operands=operands)
            cases.keep(chip, work, float(latency[row]))
    return cases.judge()


def _why_not(chip: Architecture | None, format_: tuple[int, Format] | None, layer: Layer | None) -> str:
    if chip is None:
        return NO_TEMPLATE
    return NOT_MEASURED if format_ and layer else NOT_MODELLED


def _format(dtype: str) -> tuple[int, Format] | None:
    """Bytes of an element and format of the arithmetic, by DeepBench's words; None for others."""
    if dtype.startswith("fp16"):
        return 2, Format.FP32 if dtype.endswith("fp32 math") else Format.FP16
    return (4, Format.FP32) if dtype == "fp32" else None


def _deepbench_layers(columns: Columns) -> list[Layer | None]:
    """Sizes of each row's convolution; None where the kernel is not known."""
    names = ("batch", "w", "h", "in_ch", "out_ch", "pad_w", "pad_h", "stride_h", "stride_v", "r", "s")
    layers: list[Layer | None] = []
    for row in zip(*(columns.numbers(name) for name in names), strict=True):
        batch, wide, high, channels, filters, pad_wide, pad_high, right, down = (int(x) for x in row[:9])
        known = _BY_LAYER.get((wide, channels, filters, pad_high)) or _BY_PADDING.get(pad_high)
        kernel = known if np.isnan(row[9]) else (int(row[9]), int(row[10]))
        if kernel is None:
            layers.append(None)
            continue
        sides = zip((high, wide), (pad_high, pad_wide), kernel, (down, right), strict=True)
        after_high, after_wide = ((side + 2 * pad - size) // step + 1 for side, pad, size, step in sides)
        maps = (batch, channels, (high, wide))
        layers.append((maps, (filters, kernel, (down, right)), (after_high, after_wide)))
    return layers


def _fp32_flop_per_s(chip: Architecture) -> float:
    return float(product_flops_per_s(to_table([chip]), Format.FP32)[0])
