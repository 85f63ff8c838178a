"""Flash attention of one query per sequence on a key-value cache (Flash-Decoding; TensorRT-LLM's XQA and MMHA).

The query heads that share a key-value head are rows of one block, which reads the cache once: a packed block.
Otherwise every query head has a block, which reads the cache through the chip's cache and works on the vector
ALUs. Few blocks are cut along the keys, and a second step combines the pieces. Streaming takes the longest of
the memory, of what the blocks in flight can request, of the chip's cache and of the arithmetic; to start
the blocks, one packed or several single ones on a multiprocessor at a time, hides behind it in part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.cost.kernels.attention_sizes import AttentionChip, AttentionSizes

# As TensorRT-LLM chooses (decoderXQARunner, Apache-2.0): packed kernels take up to 32 heads and want blocks for
# a quarter of the multiprocessors, one for 128 keys at most; kernels of a latent head (MLA) take all its heads.
_PACKED_HEADS = 32.0
_WIDEST_FLOP = 2 * (256 + 256)  # per score, of heads as wide as ordinary ones get
_LEAST_BLOCKS = 0.25
_PIECE_KEYS = 128.0
_PIECES = 64.0  # at most; more fit the measurements no better
_STEP = 16.0  # rows of the smallest matrix instruction: fewer are padded to it


@dataclass(frozen=True, slots=True)
class DecodeLaw:
    """Constants of one chip family.

    `packed_cycles`, `row_cycles`: start of a packed block and every query row of it; `single_cycles`: start
    of a single one. `waves`: packed blocks per multiprocessor that the cache is cut into, if it is long
    enough. `block_bytes_per_cycle`: what one block can stream. `memory_efficiency`: share of the memory
    bandwidth that streams get. `cache_bytes_per_cycle`: bandwidth of the chip's cache per multiprocessor.
    `exposed`: share of the shorter of streaming and starting blocks that does not hide behind the longer.
    `launch_s`, `combine_s`: launching it, and combining pieces.
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
    """Seconds of each attention on an otherwise idle chip."""
    packed = _packed(sizes, chip)
    whole = np.where(packed, sizes.heads / sizes.share, sizes.heads)
    pieces = _pieces(sizes, whole, np.where(packed, law.waves, 1.0), chip)
    stream = _stream_s(sizes, packed, whole * pieces, chip, law)
    one = np.where(packed, law.packed_cycles + law.row_cycles * sizes.share, law.single_cycles)
    start = np.maximum(whole * pieces / chip.multiprocessors, 1.0) * one / chip.clock_hz
    exposed = law.exposed * np.minimum(stream, start)
    return law.launch_s + np.maximum(stream, start) + exposed + law.combine_s * (pieces > 1)


def _packed(sizes: AttentionSizes, chip: AttentionChip) -> Flags:
    """Where the query heads of a key-value head share a block."""
    blocks = sizes.heads / sizes.share * np.maximum(1.0, np.floor(sizes.keys / _PIECE_KEYS))
    few = (sizes.share <= _PACKED_HEADS) | (sizes.flop > _WIDEST_FLOP)
    packed: Flags = (sizes.share > 1) & few & (blocks >= _LEAST_BLOCKS * chip.multiprocessors)
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
    rows = np.where(packed, _STEP * np.ceil(sizes.share / _STEP), 1.0)
    readers = sizes.heads / np.where(packed, sizes.share, 1.0)
    rate = np.where(packed, chip.product_flop_per_s, _vector_flop_per_s(chip))
    compute = readers * rows * sizes.keys * sizes.flop / rate
    cache = readers * sizes.key_value_bytes / chip.cache_bytes_per_s(law)
    memory = np.where(sizes.cached, 0.0, sizes.moved_bytes / chip.stream_bytes_per_s(law))
    requested = sizes.moved_bytes / (blocks * law.block_bytes_per_cycle * chip.clock_hz)
    longest: Floats = np.maximum.reduce([compute, cache, memory, requested])
    return longest


def _vector_flop_per_s(chip: AttentionChip) -> float:
    """Of the vector ALUs; a multiply-add is two."""
    return 2.0 * chip.multiprocessors * chip.alus * chip.clock_hz
