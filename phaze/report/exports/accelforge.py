"""AccelForge 1.0: the chip as a tree of memories and computes, the products as einsums.

Format: the examples `tpu_v4i.yaml` and `matmuls.yaml` of github.com/Accelergy-Project/accelforge, release 1.0.467.
Sizes in bits, areas in m2, energy in J per bit of a memory and per multiply-accumulate, throughput in
bits or operations per second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phaze.arrays import Floats
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.area import area_parts_mm2
from phaze.hardware.derived import (
    global_buffer_bandwidth_bytes_per_s,
    hbm_bandwidth_bytes_per_s,
    hbm_capacity_bytes,
    local_buffer_bytes_per_core,
)
from phaze.hardware.power import energy_constants
from phaze.hardware.table import ArchitectureTable
from phaze.report.exports.products import Product

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


def architecture(chip: Architecture) -> str:
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


def workload(products: Sequence[Product]) -> str:
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


def _einsum(i: int, product: Product) -> str:
    return f"""\
  - name: {product.name}
    n_instances: {product.times}
    tensor_accesses:
    - {{name: A{i}, projection: [m{i}, k{i}]}}
    - {{name: B{i}, projection: [k{i}, n{i}]}}
    - {{name: C{i}, projection: [m{i}, n{i}], output: True}}
    renames: {{input: A{i}, weight: B{i}, output: C{i}}}
"""
