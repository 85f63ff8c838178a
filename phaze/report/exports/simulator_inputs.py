"""Input files of other simulators for an architecture and the matrix products of a workload: SCALE-Sim v2 and v3 (one
tensor core, a topology of M, N, K) and AccelForge 1.0 (a tree of memories and computes, einsums)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    global_buffer_bandwidth_bytes_per_s,
    hbm_bandwidth_bytes_per_s,
    hbm_capacity_bytes,
    local_buffer_bytes_per_core,
)
from phaze.hardware.silicon.die_area import area_parts_mm2
from phaze.hardware.silicon.package_power import energy_constants
from phaze.validation.scalesim.scalesim_cycles import Dataflow
from phaze.workload.work import Gemm, LayerChain


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """`times` independent products (m x k) times (k x n) of one iteration over one microbatch on one device.

    A convolution is the product over its window. `name`: letters, digits and `_`, of the operator met first.
    """

    name: str
    m: int
    k: int
    n: int
    times: int


def matrix_products(chain: LayerChain) -> tuple[MatrixProduct, ...]:
    """All products of a chain, forward and backward, equal ones together, in the order in which they are met."""
    names: dict[tuple[int, int, int], str] = {}
    times: Counter[tuple[int, int, int]] = Counter()
    often = Counter(chain.index)
    for position, layer in enumerate(chain.layers):
        for part in filter(None, (layer.forward, layer.backward)):
            for work in part.works:
                for gemm in work.gemms:
                    names.setdefault(_shape(gemm), _word(f"{layer.kind}_{work.name}"))
                    times[_shape(gemm)] += gemm.groups * often[position]
    return tuple(
        MatrixProduct(f"p{number}_{name}", *shape, times[shape])
        for number, (shape, name) in enumerate(names.items())
    )


def _shape(gemm: Gemm) -> tuple[int, int, int]:
    return (gemm.m, gemm.k, gemm.n)


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


_WORD_BYTES = 2  # the operands of tensor cores: bf16 or fp16
_BUFFERS = 3  # feature map, filter, result


def scale_sim_config(chip: Architecture) -> str:
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


def scale_sim_topology(products: Sequence[MatrixProduct]) -> str:
    """The CSV that `-i gemm` reads; how often each product runs, which the tool has no column for, ends its name."""
    lines = ["Layer, M, N, K,", *(f"{p.name}_x{p.times}, {p.m}, {p.n}, {p.k}," for p in products)]
    return "\n".join(lines) + "\n"


SCALE_SIM_LAYOUT = "Layer,\n"
"""The file of layouts that 3.0.0 wants to be given; no layer has one of its own."""


def _words_per_cycle(chip: Architecture, cores: int) -> int:
    bandwidth = float(hbm_bandwidth_bytes_per_s(to_table([chip]))[0])
    return max(round(bandwidth / cores / float(chip.value("clock_hz") or 1.0) / _WORD_BYTES), 1)


def _hertz(chip: Architecture) -> str:
    return f"{float(chip.value('clock_hz') or 0.0) / 1e9:.4g} GHz"


_BITS = 8
_OPERAND_BITS = 16  # of tensor cores: bf16 or fp16
_M2 = 1e-6  # of a mm2
_ARCHITECTURE = """\
# {name}, written by phaze-dse for AccelForge 1.0.
# Not expressed: vector cores (element-wise operators run nowhere), collectives and links, background and leakage power,
# the delivery of operands to the array apart from the local buffer, what dealing a product to several cores costs.
arch:
  nodes:
  - !Memory
    name: MainMemory
    size: {hbm_bits:.0f}
    leak_power: 0
    area: {hbm_m2:.6e}
    actions:
    - {{name: read, energy: {hbm_j:.6e}, throughput: {hbm:.6e}}}
    - {{name: write, energy: {hbm_j:.6e}, throughput: {hbm:.6e}}}
    tensors: {{keep: ~Intermediates, may_keep: All}}

  - !Memory
    name: GlobalBuffer
    size: {buffer_bits}
    leak_power: 0
    area: {buffer_m2:.6e}
    actions:
    - {{name: read, energy: {buffer_j:.6e}, throughput: {buffer:.6e}}}
    - {{name: write, energy: {buffer_j:.6e}, throughput: {buffer:.6e}}}
    tensors: {{keep: ~MainMemory.tensors, may_keep: All}}

  - !Memory
    name: LocalBuffer
    spatial: [{{name: TensorCore, fanout: {cores}, may_reuse: Nothing, min_usage: 0}}]
    size: {local_bits:.0f}
    leak_power: 0
    area: {local_m2:.6e}
    actions: # feeds its array at full rate
    - {{name: read, energy: {local_j:.6e}, throughput: inf}}
    - {{name: write, energy: {local_j:.6e}, throughput: inf}}
    tensors: {{keep: input | output}}

  - !Container
    name: ProcessingElement
    spatial: # an input runs along a row over all columns, a result is summed along a column over all rows
    - {{name: columns, fanout: {columns}, reuse: input, min_usage: 0}}
    - {{name: rows, fanout: {rows}, reuse: output, min_usage: 0}}

  - !Memory
    name: Register
    size: weight.bits_per_value if weight else 0
    leak_power: 0
    area: {register_m2:.6e}
    actions:
    - {{name: read, energy: 0, throughput: inf}}
    - {{name: write, energy: 0, throughput: inf}}
    tensors: {{keep: weight}}

  - !Compute
    name: MAC
    leak_power: 0
    area: {mac_m2:.6e}
    actions:
    - {{name: compute, energy: {mac_j:.6e}, throughput: {clock:.6e}}}
"""


def accelforge_architecture(chip: Architecture) -> str:
    """The `arch:` tree: HBM, global buffer, local buffers, and tensor cores that keep weights.

    Area and energy are those of our laws (`dse explain`): the parts' areas are divided among their instances.
    """
    table = to_table([chip])
    energy, parts = energy_constants(table), area_parts_mm2(table)
    cores, rows, columns, buffer_bytes = (
        int(chip.value(name) or 0)
        for name in ("tensor_cores", "tensor_core_rows", "tensor_core_columns", "global_buffer_bytes")
    )

    def bits(law: Callable[[ArchitectureTable], Floats]) -> float:
        return float(law(table)[0]) * _BITS

    def area_m2(part: str, instances: int = 1) -> float:
        return float(parts[part][0]) * _M2 / instances

    return _ARCHITECTURE.format(
        name=chip.name,
        cores=cores,
        rows=rows,
        columns=columns,
        clock=float(chip.value("clock_hz") or 0.0),
        hbm_bits=bits(hbm_capacity_bytes),
        hbm=bits(hbm_bandwidth_bytes_per_s),
        hbm_j=float(energy.hbm_j_per_byte[0]) / _BITS,
        hbm_m2=area_m2("hbm_phy"),
        buffer_bits=buffer_bytes * _BITS,
        buffer=bits(global_buffer_bandwidth_bytes_per_s),
        buffer_j=float(energy.global_buffer_j_per_byte[0]) / _BITS,
        buffer_m2=area_m2("global"),
        local_bits=bits(local_buffer_bytes_per_core),
        local_j=float(energy.local_buffer_j_per_byte[0]) / _BITS,
        local_m2=area_m2("local", cores),
        register_m2=area_m2("registers", cores * rows * columns),
        mac_m2=area_m2("mac", cores * rows * columns),
        mac_j=float(energy.mac_j[0]),
    )


def accelforge_workload(products: Sequence[MatrixProduct]) -> str:
    """The `workload:` of products as einsums of their own, with the number of their instances.

    Left out: element-wise operators, and that one product reads what another one makes.
    """
    shapes = "".join(
        f"    m{i}: 0 <= m{i} < {p.m}\n    k{i}: 0 <= k{i} < {p.k}\n    n{i}: 0 <= n{i} < {p.n}\n"
        for i, p in enumerate(products)
    )
    einsums = "".join(_einsum(i, product) for i, product in enumerate(products))
    return (
        "# Matrix products of one microbatch on one device, written by phaze-dse for AccelForge 1.0.\n"
        "# Not expressed: all other operators, and which product reads what another one makes.\n"
        f"workload:\n  iteration_space_shape:\n{shapes}\n  bits_per_value: {{All: {_OPERAND_BITS}}}\n\n"
        f"  einsums:\n{einsums}"
    )


def _einsum(i: int, product: MatrixProduct) -> str:
    return f"""\
  - name: {product.name}
    n_instances: {product.times}
    tensor_accesses:
    - {{name: A{i}, projection: [m{i}, k{i}]}}
    - {{name: B{i}, projection: [k{i}, n{i}]}}
    - {{name: C{i}, projection: [m{i}, n{i}], output: True}}
    renames: {{input: A{i}, weight: B{i}, output: C{i}}}
"""


class Simulator(StrEnum):
    """Simulators that an architecture can be written for."""

    SCALE_SIM = "scale-sim"
    ACCELFORGE = "accelforge"


def simulator_files(
    chip: Architecture, products: Sequence[MatrixProduct], simulator: Simulator
) -> dict[str, str]:
    """Texts of the files by their names; those of a workload where there are products.

    Raises InputError for a chip without tensor cores.
    """
    if chip.value("vector_products"):
        raise InputError(
            f"{chip.name} has no tensor cores: its products run on vector ALUs, which {simulator} does not know"
        )
    if simulator is Simulator.SCALE_SIM:
        files = {"architecture.cfg": scale_sim_config(chip)}
        work = {"topology.csv": scale_sim_topology(products), "layout.csv": SCALE_SIM_LAYOUT}
        return files | (work if products else {})
    files = {"architecture.yaml": accelforge_architecture(chip)}
    return files | ({"workload.yaml": accelforge_workload(products)} if products else {})
