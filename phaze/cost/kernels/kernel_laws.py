"""Laws of kernels: the one that costs each operator, and the constants of each family.

The analytic fidelity takes one set of constants for all chips (`generic`), so that it says something of chips
nobody has built; the calibrated fidelity takes those of the chip's family. An operator that no law costs is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from phaze.arrays import Floats
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.convolutions import (
    ConvolutionLaw,
    Convolutions,
    convolution_chip,
    convolutions,
    convolutions_s,
    held_by_tensor_cores,
    padded_product,
)
from phaze.cost.kernels.expert_layers import FUSED, SCATTERED, UNPACKED, ExpertLaw, expert_layers_s
from phaze.cost.kernels.fitted_constants import GENERIC, NO_OWN, Constants, OwnConstants
from phaze.cost.kernels.flash_attention import (
    LATENT_TRITON,
    AttentionChip,
    AttentionSizes,
    DecodeLaw,
    PrefillLaw,
    attention_chip,
    attention_sizes,
    decode_s,
    decodes,
    gradient_streams,
    is_backward,
    prefill_s,
)
from phaze.cost.kernels.link_constants import switched_s
from phaze.cost.kernels.quantise_kernel import PER_BLOCK, PER_TENSOR, TO_FP4, QuantiseLaw, quantise_s
from phaze.cost.kernels.simt_products import simt_law, simt_products_s
from phaze.cost.kernels.streaming_kernels import StreamLaw, Streams, memory_s, stream_chip, streams_s
from phaze.cost.kernels.systolic_programs import SerialLaw, program_s, systolic_products_s
from phaze.cost.roofline_model import least_s
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.hardware_fields import field_table
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.work import LATENT, Format, Gemm, Traffic, Unit, Work


class Shape(StrEnum):
    """Kinds of operators that have laws of their own."""

    PRODUCT = "product"
    CONVOLUTION = "convolution"
    EPILOGUE = "epilogue"  # products that do element-wise work on their way out
    STREAM = "stream"  # no products
    QUANTISE = "quantise"
    EXPERTS = "experts"
    LINK = "link"
    PREFILL = "prefill"  # flash attention over whole sequences
    DECODE = "decode"  # and of one query per sequence on a cache


L = TypeVar("L")

Law = Callable[[Sequence[Work], ArchitectureTable, Constants], Floats | None]
"""(operators of one shape, a table of one chip, constants) -> seconds (O,), None where nothing is fitted."""


def kernels_s(
    works: Sequence[Work], table: ArchitectureTable, rung: Fidelity, own: OwnConstants = NO_OWN
) -> Floats:
    """Seconds of each operator alone on each chip, launch included, (A, O); NaN where no law costs it.

    `own`: constants that the calibrated fidelity takes before the family's.
    """
    return _each(alone_s, works, table, rung, own)


def in_models_s(
    works: Sequence[Work], table: ArchitectureTable, rung: Fidelity, own: OwnConstants = NO_OWN
) -> Floats:
    """Seconds in whole models, where a compiler makes one program of the operators of a systolic chip."""

    def seconds(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats:
        return (alone_s if chip["simt"][0] else program_s)(works, chip, constants)

    return _each(seconds, works, table, rung, own)


def _each(
    law: Callable[[Sequence[Work], ArchitectureTable, Constants], Floats],
    works: Sequence[Work],
    table: ArchitectureTable,
    rung: Fidelity,
    own: OwnConstants,
) -> Floats:
    """Seconds on each chip of a table by the constants of its fidelity, (A, O)."""
    seconds = np.empty((len(table), len(works)))
    for row in range(len(table)):
        chip = table.take([row])
        family = str(field_table()["family"].decode(chip["family"][0]))
        constants = Constants(GENERIC) if rung is Fidelity.ANALYTIC else Constants(family, own)
        seconds[row] = law(works, chip, constants)
    return seconds


def alone_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats:
    """Seconds on one chip, a table of one, by given constants, (O,)."""
    seconds, shapes = np.full(len(works), np.nan), [shape_of(work) for work in works]
    for shape, law in _LAWS.items():
        where = [o for o, found in enumerate(shapes) if found is shape]
        if where:
            costed = law([works[o] for o in where], chip, constants)
            seconds[where] = np.nan if costed is None else costed
    return seconds


def shape_of(work: Work) -> Shape | None:
    """The law that an operator needs; None where there is none."""
    if work.link is not None:
        return Shape.LINK
    if work.flash is not None:
        return Shape.DECODE if decodes(work) else Shape.PREFILL
    named = _BY_KIND.get(work.kind)
    if named is not None or work.unit is Unit.VECTOR:
        return named or Shape.STREAM
    return _product_shape(work)


def _product_shape(work: Work) -> Shape | None:
    """One product alone, or some with an epilogue."""
    if not work.gemms or any(gemm.traffic is not Traffic.TILED for gemm in work.gemms):
        return None
    alone = len(work.gemms) == 1 and work.stream_bytes == 0 and work.vector_cycles == 0
    return Shape.PRODUCT if alone else Shape.EPILOGUE


_BY_KIND: Mapping[str, Shape] = MappingProxyType(
    {
        **dict.fromkeys((PER_TENSOR, PER_BLOCK, TO_FP4), Shape.QUANTISE),
        **dict.fromkeys((FUSED, SCATTERED, UNPACKED), Shape.EXPERTS),
        OpKind.CONV.value: Shape.CONVOLUTION,
    }
)


def _products_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    """Products alone: tiles and waves on many multiprocessors, one after the other on few large arrays."""
    return _gemms_s([work.gemms[0] for work in works], chip, constants)


def _gemms_s(gemms: Sequence[Gemm], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    if chip["simt"][0]:
        return _tiled_s(gemms, chip, constants)
    serial = constants.law(SerialLaw, "serial.yaml")
    return None if serial is None else systolic_products_s(gemms, chip, serial)


def _convolutions_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    """Convolutions and their gradients on many multiprocessors."""
    law = constants.law(ConvolutionLaw, "convolution.yaml") if chip["simt"][0] else None
    if law is None:
        return None
    seconds = _convolved_s(works, convolutions(works, chip), chip, constants, law)
    slower = np.flatnonzero(held_by_tensor_cores(works, chip))
    if len(slower):
        some = [works[o] for o in slower.tolist()]
        matrix = _convolved_s(some, convolutions(some, chip, matrix=True), chip, constants, law)
        seconds[slower] = np.fmin(seconds[slower], matrix)
    return seconds


def _convolved_s(
    works: Sequence[Work],
    rows: Convolutions,
    chip: ArchitectureTable,
    constants: Constants,
    law: ConvolutionLaw,
) -> Floats:
    """Convolutions on the units that `rows` says, (O,)."""
    seconds = convolutions_s(rows, convolution_chip(chip), law)
    if not law.as_products:
        return seconds
    products = _tiled_s([padded_product(work.gemms[0]) for work in works], chip, constants)
    return np.where(rows.on_tensor_cores, np.fmin(seconds, products), seconds)


def _stream_law(chip: ArchitectureTable, constants: Constants) -> StreamLaw | None:
    """Kernels of SIMT chips and of others have constants, generic ones too, of their own."""
    return constants.law(StreamLaw, "streams.yaml" if chip["simt"][0] else "serial_streams.yaml")


def _streams_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    """Operators on vector cores alone."""
    law = _stream_law(chip, constants)
    return None if law is None else streams_s(Streams.of(works), stream_chip(chip), law)


def _epilogues_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    """The products alone, and the other tensors that the epilogue moves; its arithmetic hides behind both."""
    gemms = [(o, gemm) for o, work in enumerate(works) for gemm in work.gemms]
    products, law = _gemms_s([g for _, g in gemms], chip, constants), _stream_law(chip, constants)
    if products is None or law is None:
        return None
    extra = np.maximum([work.stream_bytes for work in works], 0.0)
    seconds: Floats = memory_s(extra, stream_chip(chip), law)
    np.add.at(seconds, [o for o, _ in gemms], products)
    return seconds


def _tiled_s(gemms: Sequence[Gemm], chip: ArchitectureTable, constants: Constants) -> Floats:
    """Products by tiles, each format by the constants of its kernels."""

    def cost(where: Sequence[int], operands: Format | None) -> Floats | None:
        law = simt_law(operands, constants)
        return None if law is None else simt_products_s([gemms[g] for g in where], chip, law)

    return _by_format([gemm.operands for gemm in gemms], cost)


def _by_format(
    formats: Sequence[Format | None], cost: Callable[[Sequence[int], Format | None], Floats | None]
) -> Floats:
    """A figure of every cost, placed at the positions of each format; NaN where there is none."""
    seconds = np.full(len(formats), np.nan)
    for operands in set(formats):
        where = [o for o, found in enumerate(formats) if found is operands]
        costed = cost(where, operands)
        seconds[where] = np.nan if costed is None else costed
    return seconds


def _quantise_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    """Scaling to 8 bits on chips of many small multiprocessors."""
    law = constants.law(QuantiseLaw, "quantise.yaml") if chip["simt"][0] else None
    return None if law is None else quantise_s(works, chip, law)


def _experts_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    """Layers of experts on many small multiprocessors, each way to run them by constants of its own."""
    if not chip["simt"][0]:
        return None
    gemms = [(o, gemm) for o, work in enumerate(works) for gemm in work.gemms]
    products, seconds = np.zeros(len(works)), np.full(len(works), np.nan)
    np.add.at(products, [o for o, _ in gemms], _tiled_s([g for _, g in gemms], chip, constants))
    for kind in {work.kind for work in works}:
        law = constants.law(ExpertLaw, f"{kind}.yaml")
        where = [o for o, work in enumerate(works) if work.kind == kind]
        if law is not None:
            seconds[where] = expert_layers_s([works[o] for o in where], products[where], chip, law)
    return seconds


def _links_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    """Collectives among devices on one switch."""
    links = [work.link for work in works if work.link is not None]
    return switched_s(links, float(chip["link_bandwidth_bytes_per_s"][0]), constants.family)


def _prefill_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    """Flash attention over whole sequences, on many multiprocessors; its gradients with the kernels around theirs."""
    seconds = _by_kind(works, chip, constants, PrefillLaw, "prefill", prefill_s)
    law, backward = _stream_law(chip, constants), [o for o, work in enumerate(works) if is_backward(work)]
    if seconds is not None and law is not None and backward:
        around = gradient_streams([works[o] for o in backward])
        seconds[backward] += streams_s(around, stream_chip(chip), law).reshape(-1, 2).sum(axis=1)
    return seconds


def _decode_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats | None:
    """Flash attention of one query per sequence, on many multiprocessors."""
    return _by_kind(works, chip, constants, DecodeLaw, "decode", decode_s)


_LATENT = (LATENT, LATENT_TRITON)


def _stem(work: Work) -> str:
    """How the names of a kernel's constants begin: of latent attention, of kernels that sort first, or of others."""
    if work.kind in _LATENT:
        return work.kind
    return "attention_sorted" if work.flash is not None and work.flash.staged_bytes else "attention"


def _by_kind(
    works: Sequence[Work],
    chip: ArchitectureTable,
    constants: Constants,
    kind: type[L],
    phase: str,
    law_s: Callable[[AttentionSizes, AttentionChip, L], Floats],
) -> Floats | None:
    """Attention of each kind by constants of its own; None where a chip has none of the commonest."""
    if not chip["simt"][0]:
        return None
    seconds = np.full(len(works), np.nan)
    stems = [_stem(work) for work in works]
    for stem in set(stems):
        law = constants.law(kind, f"{stem}_{phase}.yaml")
        where = [o for o, found in enumerate(stems) if found == stem]
        if law is not None:
            costed = partial(_with_law, law_s=law_s, law=law)
            seconds[where] = _flash_s([works[o] for o in where], chip, constants, costed)
    return seconds


def _with_law(
    sizes: AttentionSizes,
    chip: AttentionChip,
    law_s: Callable[[AttentionSizes, AttentionChip, L], Floats],
    law: L,
) -> Floats:
    return law_s(sizes, chip, law)


def _flash_s(
    works: Sequence[Work],
    chip: ArchitectureTable,
    constants: Constants,
    law: Callable[[AttentionSizes, AttentionChip], Floats],
) -> Floats:
    """Flash attention by a law of it, at the rate of each one's format."""

    def cost(where: Sequence[int], operands: Format | None) -> Floats:
        return law(attention_sizes([works[o] for o in where], chip), attention_chip(chip, operands))

    return _bounded(_by_format([work.gemms[0].operands for work in works], cost), works, chip, constants)


def _bounded(seconds: Floats, works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats:
    """The analytic fidelity stays above the roofline."""
    if constants.family != GENERIC:
        return seconds
    return np.maximum(seconds, [float(least_s(work, chip)[0]) for work in works])


_LAWS: Mapping[Shape, Law] = MappingProxyType(
    {
        Shape.PRODUCT: _products_s,
        Shape.CONVOLUTION: _convolutions_s,
        Shape.EPILOGUE: _epilogues_s,
        Shape.STREAM: _streams_s,
        Shape.QUANTISE: _quantise_s,
        Shape.EXPERTS: _experts_s,
        Shape.LINK: _links_s,
        Shape.PREFILL: _prefill_s,
        Shape.DECODE: _decode_s,
    }
)
