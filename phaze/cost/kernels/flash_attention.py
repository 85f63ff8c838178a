"""Flash attention as arrays over operators: over whole sequences, forward and backward (FlashAttention-2, arXiv
2307.08691), and of one query per sequence on a key-value cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats
from phaze.cost.kernels.streaming_kernels import Streams
from phaze.cost.roofline_model import stays_cached, vector_cycles
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    hbm_bandwidth_bytes_per_s,
    multiprocessors,
    peak_clock_hz,
    product_flops_per_s,
    vector_alus,
)
from phaze.workload.work import Flash, Format, Work

LATENT_TRITON = "latent_attention_triton"
"""Kind of attention over latent vectors by Triton's kernels: the laws of `LATENT`, other constants."""

_FORWARD_PRODUCTS = 2  # scores and their weighted sum


class Bandwidths(Protocol):
    """Constants of a law on the way of tensors to the multiprocessors."""

    @property
    def memory_efficiency(self) -> float:
        """Share of the memory bandwidth that streams get."""
        ...

    @property
    def cache_bytes_per_cycle(self) -> float:
        """Bandwidth of the chip's cache per multiprocessor."""
        ...


@dataclass(frozen=True, slots=True)
class AttentionChip:
    """Figures of a chip that the laws need, at its boost clock; ALUs are those of one multiprocessor."""

    multiprocessors: float
    clock_hz: float
    product_flop_per_s: float
    alus: float
    memory_bytes_per_s: float

    def stream_bytes_per_s(self, law: Bandwidths) -> float:
        """Bandwidth of the memory, to kernels of a family."""
        return law.memory_efficiency * self.memory_bytes_per_s

    def cache_bytes_per_s(self, law: Bandwidths) -> float:
        """Bandwidth of the cache, to kernels of a family; what comes from memory passes it, so it is no slower."""
        own = self.multiprocessors * self.clock_hz * law.cache_bytes_per_cycle
        return max(own, self.stream_bytes_per_s(law))


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Flash attentions, arrays of one length.

    `backward`: the pass; `cached`: all tensors are in the chip's cache. `heads`: query heads of all sequences;
    `share`: those that read one key-value head; `keys`: that a query may see, `visible` of which the mask leaves
    on average; `flop`, `cycles`: of all products and of element-wise work on the vector ALUs, per score;
    `key_value_bytes`: keys and values of one head (while decoding); `moved_bytes`: each tensor once;
    `staged_bytes`: of rearranging them before.
    """

    backward: NDArray[np.bool_]
    cached: NDArray[np.bool_]
    heads: Floats
    share: Floats
    queries: Floats
    keys: Floats
    visible: Floats
    flop: Floats
    cycles: Floats
    key_value_bytes: Floats
    moved_bytes: Floats
    staged_bytes: Floats


def attention_sizes(works: Sequence[Work], chip: ArchitectureTable) -> AttentionSizes:
    """Sizes of operators whose `flash` is set, on a chip, a table of one. Raises ValueError for any other."""
    figures = np.array([_figures(work, chip) for work in works], dtype=np.float64).T
    backward = np.array([is_backward(work) for work in works])
    cached = np.array([bool(stays_cached(work, chip)[0]) for work in works])
    return AttentionSizes(backward, cached, *figures)


def decodes(work: Work) -> bool:
    """If a flash attention has one query per sequence, on a cache: forward, and nothing is to be rearranged before."""
    flash = _flash(work)
    return flash.queries == 1 and flash.staged_bytes == 0 and not is_backward(work)


def is_backward(work: Work) -> bool:
    """If an operator is the gradients of a flash attention, five products instead of two."""
    return len(work.gemms) > _FORWARD_PRODUCTS


def _figures(work: Work, chip: ArchitectureTable) -> tuple[float, ...]:
    """One operator's figures, in the order of the fields from `heads` on."""
    flash, scores = _flash(work), work.gemms[0]
    number = scores.groups * scores.m * scores.n
    return (
        number / (flash.queries * scores.n),
        flash.share,
        flash.queries,
        scores.n,
        flash.visible,
        2.0 * work.macs / number,
        float(vector_cycles(work, chip)[0]) / number,
        (scores.b_bytes + work.gemms[1].b_bytes) / scores.groups,
        work.stream_bytes,
        flash.staged_bytes,
    )


def _flash(work: Work) -> Flash:
    if work.flash is None:
        msg = f"operator {work.name!r} is no flash attention"
        raise ValueError(msg)
    return work.flash


def attention_chip(chip: ArchitectureTable, operands: Format | None = None) -> AttentionChip:
    """The fields of a chip, a table of one, that the laws need; products on operands of a format."""
    units = float(multiprocessors(chip)[0])
    return AttentionChip(
        multiprocessors=units,
        clock_hz=float(peak_clock_hz(chip)[0]),
        product_flop_per_s=float(product_flops_per_s(chip, operands)[0]),
        alus=float(vector_alus(chip)[0]) / units,
        memory_bytes_per_s=float(hbm_bandwidth_bytes_per_s(chip)[0]),
    )


_SUM_BYTES = 4.0  # fp32: gradients of queries while they are added up, and sums of rows


def gradient_streams(works: Sequence[Work]) -> Streams:
    """Kernels before and after those of flash attention's gradients, two each.

    Blocks of keys add to the gradients of queries in fp32 (FlashAttention-2, arXiv 2307.08691, algorithm 2). One kernel
    sets these to zero and sums the products of output and its gradient over each row; one casts them in the end
    (flash_bwd_dot_do_o_kernel and flash_bwd_convert_dq_kernel, github Dao-AILab/flash-attention).
    """
    moved = []
    for work in works:
        scores, sums = work.gemms[0], work.gemms[1]
        rows = float(scores.groups * scores.m)
        operand_bytes = scores.a_bytes / (rows * scores.k)
        before = 2 * operand_bytes * sums.n + _SUM_BYTES * (scores.k + 1)
        after = (_SUM_BYTES + operand_bytes) * scores.k
        moved += [rows * before, rows * after]
    return Streams.moving(np.array(moved, dtype=np.float64))


_PREFILL_TILE = 128.0  # queries of a block, and the step in which masked keys are skipped
_PREFILL_STEP = 16.0  # rows of the smallest matrix instruction: shorter tiles are padded to it
_BACKWARD = 0.86  # of forward's efficiency: 63 and 73 % of the A100's peak (arXiv 2307.08691)


@dataclass(frozen=True, slots=True)
class PrefillLaw:
    """Constants of one chip family.

    `efficiency`: share of the peak that the products reach while they run. `softmax`: share of the
    element-wise cycles that does not hide behind them. `block_cycles`, `row_cycles`: start of a block and
    every query row of it. `memory_efficiency`: share of the memory bandwidth that streams get.
    `cache_bytes_per_cycle`: bandwidth of the chip's cache per multiprocessor, for tensors that stay there.
    `launch_s`: launching it all. `backward`: efficiency of the products of gradients over that of forward's.
    """

    efficiency: float
    softmax: float
    block_cycles: float
    row_cycles: float
    memory_efficiency: float
    cache_bytes_per_cycle: float
    launch_s: float
    backward: float = _BACKWARD


def prefill_s(sizes: AttentionSizes, chip: AttentionChip, law: PrefillLaw) -> Floats:
    """Seconds of each attention on an otherwise idle chip."""
    blocks = sizes.heads * np.ceil(sizes.queries / _PREFILL_TILE)
    compute = _compute_s(sizes, blocks, chip, law)
    rows = np.minimum(sizes.queries, _PREFILL_TILE)
    start = (law.block_cycles + law.row_cycles * rows) / chip.clock_hz
    compute = compute + np.maximum(blocks / chip.multiprocessors, 1.0) * start
    second_per_byte = _seconds_per_byte(sizes, chip, law)
    memory = sizes.moved_bytes * second_per_byte
    return law.launch_s + np.maximum(compute, memory) + sizes.staged_bytes * second_per_byte


def _compute_s(sizes: AttentionSizes, blocks: Floats, chip: AttentionChip, law: PrefillLaw) -> Floats:
    """Seconds of the busiest multiprocessor for the scores of its blocks."""
    rows = np.minimum(_padded(sizes.queries), _PREFILL_TILE)
    # of the tiles that the mask cuts, the hidden scores are computed too
    diagonal = np.where(sizes.visible < 1.0, (_PREFILL_TILE - 1.0) / 2, 0.0)
    keys = _padded(np.minimum(sizes.keys, sizes.visible * sizes.keys + diagonal))
    efficiency = law.efficiency * np.where(sizes.backward, law.backward, 1.0)
    products = sizes.flop * chip.multiprocessors / (efficiency * chip.product_flop_per_s)
    softmax = law.softmax * sizes.cycles / (chip.alus * chip.clock_hz)
    waves = np.ceil(blocks / chip.multiprocessors)
    seconds: Floats = waves * rows * keys * (products + softmax)
    return seconds


def _seconds_per_byte(sizes: AttentionSizes, chip: AttentionChip, law: PrefillLaw) -> Floats:
    """Seconds per byte of the cache where all tensors are there, of the memory otherwise."""
    rate: Floats = np.where(sizes.cached, chip.cache_bytes_per_s(law), chip.stream_bytes_per_s(law))
    return 1.0 / rate


def _padded(rows: Floats) -> Floats:
    padded: Floats = _PREFILL_STEP * np.ceil(rows / _PREFILL_STEP)
    return padded


# As TensorRT-LLM chooses (decoderXQARunner, Apache-2.0): packed kernels take up to 32 heads and want blocks for
# a quarter of the multiprocessors, one for 128 keys at most; kernels of a latent head (MLA) take all its heads.
_PACKED_HEADS = 32.0
_WIDEST_FLOP = 2 * (256 + 256)  # per score, of heads as wide as ordinary ones get
_HEAD_FLOP = 2 * (128 + 128)  # of heads 128 wide
_LEAST_BLOCKS = 0.25
_PIECE_KEYS = 128.0
_PIECES = 64.0  # at most; more fit the measurements no better
_DECODE_STEP = 16.0  # rows of the smallest matrix instruction: fewer are padded to it


@dataclass(frozen=True, slots=True)
class DecodeLaw:
    """Constants of one chip family.

    `packed_cycles`, `row_cycles`: start of a packed block and every query row of it, of a head 128 wide;
    `single_cycles`: start of a single one. `waves`: packed blocks per multiprocessor that the cache is cut
    into, if it is long enough. `block_bytes_per_cycle`: what one block can stream. `memory_efficiency`: share
    of the memory bandwidth that streams get. `cache_bytes_per_cycle`: bandwidth of the chip's cache per
    multiprocessor. `exposed`: share of the shorter of streaming and starting blocks that does not hide behind
    the longer. `launch_s`, `combine_s`: launching it, and combining pieces.
    """

    packed_cycles: float
    row_cycles: float
    single_cycles: float
    waves: float
    block_bytes_per_cycle: float
    memory_efficiency: float
    cache_bytes_per_cycle: float
    exposed: float
    launch_s: float
    combine_s: float


def decode_s(sizes: AttentionSizes, chip: AttentionChip, law: DecodeLaw) -> Floats:
    """Seconds of each attention on an otherwise idle chip.

    Packed as the library chooses, and also where that leaves multiprocessors idle and is faster all the same.
    """
    seconds = _cut_s(sizes, _packed(sizes, chip, _LEAST_BLOCKS), chip, law)
    return np.minimum(seconds, _cut_s(sizes, _packed(sizes, chip, 0.0), chip, law))


def _cut_s(sizes: AttentionSizes, packed: Flags, chip: AttentionChip, law: DecodeLaw) -> Floats:
    """The same with some packed, the keys of each cut into as many pieces as fill the chip."""
    whole = np.where(packed, sizes.heads / sizes.share, sizes.heads)
    pieces = _pieces(sizes, whole, np.where(packed, law.waves, 1.0), chip)
    stream = _stream_s(sizes, packed, whole * pieces, chip, law)
    width = sizes.flop / _HEAD_FLOP
    one = np.where(packed, law.packed_cycles + law.row_cycles * sizes.share * width, law.single_cycles)
    start = np.maximum(whole * pieces / chip.multiprocessors, 1.0) * one / chip.clock_hz
    exposed = law.exposed * np.minimum(stream, start)
    return law.launch_s + np.maximum(stream, start) + exposed + law.combine_s * (pieces > 1)


def _packed(sizes: AttentionSizes, chip: AttentionChip, least: float) -> Flags:
    """Operators where the query heads of a key-value head share a block: those with blocks for a share of the chip."""
    blocks = sizes.heads / sizes.share * np.maximum(1.0, np.floor(sizes.keys / _PIECE_KEYS))
    few = (sizes.share <= _PACKED_HEADS) | (sizes.flop > _WIDEST_FLOP)
    packed: Flags = (sizes.share > 1) & few & (blocks >= least * chip.multiprocessors)
    return packed


def _pieces(sizes: AttentionSizes, whole: Floats, waves: Floats, chip: AttentionChip) -> Floats:
    """Pieces that the keys of a block are cut into."""
    wanted = np.round(waves * chip.multiprocessors / whole)
    longest = np.clip(np.floor(sizes.keys / _PIECE_KEYS), 1.0, _PIECES)
    pieces: Floats = np.clip(wanted, 1.0, longest)
    return pieces


def _stream_s(
    sizes: AttentionSizes, packed: Flags, blocks: Floats, chip: AttentionChip, law: DecodeLaw
) -> Floats:
    """Seconds to read the key-value cache and to use it."""
    rows = np.where(packed, _DECODE_STEP * np.ceil(sizes.share / _DECODE_STEP), 1.0)
    readers = sizes.heads / np.where(packed, sizes.share, 1.0)
    rate = np.where(packed, chip.product_flop_per_s, _vector_flop_per_s(chip))
    compute = readers * rows * sizes.keys * sizes.flop / rate
    cache = readers * sizes.key_value_bytes / chip.cache_bytes_per_s(law)
    memory = np.where(sizes.cached, 0.0, sizes.moved_bytes / chip.stream_bytes_per_s(law))
    requested = sizes.moved_bytes / (blocks * law.block_bytes_per_cycle * chip.clock_hz)
    longest: Floats = np.maximum.reduce([compute, cache, memory, requested])
    return longest


def _vector_flop_per_s(chip: AttentionChip) -> float:
    """Rate of the vector ALUs; a multiply-add is two."""
    return 2.0 * chip.multiprocessors * chip.alus * chip.clock_hz
