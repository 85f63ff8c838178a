"""SCALE-Sim v2 and v3: one tensor core as a configuration, the products as a topology of M, N, K.

Format: github.com/scalesim-project/scale-sim-v2, `scale_config.py` and `topology_utils.py` of 3.0.0; 2.0.2 reads
some of these keys and ignores the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from phaze.cost.scalesim import Dataflow
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived import hbm_bandwidth_bytes_per_s
from phaze.report.exports.products import Product

_WORD_BYTES = 2  # the operands of tensor cores: bf16 or fp16
_BUFFERS = 3  # feature map, filter, result


def config(chip: Architecture) -> str:
    """The `.cfg` of one tensor core, the global buffer and HBM shared out evenly among all of them."""
    cores, rows, columns = (
        int(chip.value(name) or 0) for name in ("tensor_cores", "tensor_core_rows", "tensor_core_columns")
    )
    words = _words_per_cycle(chip, cores)
    buffer_kib = max(int(chip.value("global_buffer_bytes") or 0) // cores // _BUFFERS // 1024, 1)
    return f"""\
# One of the {cores} tensor cores of {chip.name}, written by phaze-dse for SCALE-Sim v2 and v3.
# Not expressed, for want of a key: the other tensor cores and how a product is dealt to them, vector cores,
# double-buffered weights (here every tile pays for filling and draining the array), one buffer for all operands (here a
# third of a core's share each), the clock ({_hertz(chip)}), power, area, links.
# InterfaceBandwidth CALC gives stall-free cycles. USER takes Bandwidth: a core's share of HBM, in words of
# {_WORD_BYTES} bytes per cycle.
[general]
run_name = {chip.name}

[architecture_presets]
ArrayHeight = {rows}
ArrayWidth = {columns}
IfmapSramSzkB = {buffer_kib}
FilterSramSzkB = {buffer_kib}
OfmapSramSzkB = {buffer_kib}
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Bandwidth = {words}
Dataflow = {Dataflow.WEIGHT_STATIONARY.value}
ReadRequestBuffer = 64
WriteRequestBuffer = 64

[layout]
IfmapCustomLayout = False
FilterCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2

[sparsity]
SparsitySupport = False
SparseRep = ellpack_block
OptimizedMapping = False
BlockSize = 4
RandomNumberGeneratorSeed = 40

[run_presets]
InterfaceBandwidth = CALC
UseRamulatorTrace = False
"""


def topology(products: Sequence[Product]) -> str:
    """The CSV that `-i gemm` reads; how often each product runs, which the tool has no column for, ends its name."""
    lines = ["Layer, M, N, K,", *(f"{p.name}_x{p.times}, {p.m}, {p.n}, {p.k}," for p in products)]
    return "\n".join(lines) + "\n"


LAYOUT = "Layer,\n"
"""The file of layouts that 3.0.0 wants to be given; no layer has one of its own."""


def _words_per_cycle(chip: Architecture, cores: int) -> int:
    bandwidth = float(hbm_bandwidth_bytes_per_s(to_table([chip]))[0])
    return max(round(bandwidth / cores / float(chip.value("clock_hz") or 1.0) / _WORD_BYTES), 1)


def _hertz(chip: Architecture) -> str:
    return f"{float(chip.value('clock_hz') or 0.0) / 1e9:.4g} GHz"
