"""The roofline fidelity: what no implementation on this hardware can beat.

All units at their peak, every tensor moved once. Products inside a fused kernel need no HBM bytes;
HBM bytes of an operator are those of its tiled products, moved once, and its streamed tensors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.cost.collectives.collective_times import least_link_s
from phaze.cost.tiling import compulsory_bytes
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import Network
from phaze.hardware.derived_figures import (
    hbm_bandwidth_bytes_per_s,
    macs,
    narrow_speed,
    product_flops_per_s,
    vector_alus,
)
from phaze.workload.operators.elementwise_cycles import EXP
from phaze.workload.work import NARROW, Pass, Traffic, Work

_SPECIAL_CYCLES = (
    8.0  # of 128 ALUs for as many exponentials, of which 16 special function units take one each per cycle
)
_CACHE_REACH = 1.1  # tensors a little larger than a cache still stay in it from one launch to the next


def roofline_s(pass_: Pass, table: ArchitectureTable, network: Network) -> Floats:
    """Lower bound in s on the latency of every operator, (A, O), with all cores at its service."""
    bounds = np.empty((len(table), len(pass_.works)))
    for o, work in enumerate(pass_.works):
        bounds[:, o] = least_s(work, table)
        if work.link is not None:
            bounds[:, o] = np.maximum(
                bounds[:, o], least_link_s(work.link, network, table["link_bandwidth_bytes_per_s"])
            )
    return bounds


def least_s(work: Work, table: ArchitectureTable) -> Floats:
    """Lower bound in s on the latency of an operator but for its link, (A,); masked scores cost nothing."""
    clock = np.asarray(table["clock_hz"], dtype=np.float64)
    visible = 1.0 if work.flash is None else work.flash.visible
    tensor = visible * _least_product_s(work, table)
    vector = visible * _least_vector_cycles(work, table) / (vector_alus(table) * clock)
    moved = np.where(stays_cached(work, table), 0.0, _least_bytes(work)) / hbm_bandwidth_bytes_per_s(table)
    return np.asarray(np.maximum(np.maximum(tensor, vector), moved))


def _least_vector_cycles(work: Work, table: ArchitectureTable) -> Floats:
    """Cycles on the vector ALUs that nothing hides, (A,).

    A GPU's special function units take the exponentials of flash attention, beside the ALUs that do the rest.
    """
    every = vector_cycles(work, table)
    if work.flash is None or not np.any(table["simt"]):
        return every
    scores = work.gemms[0].groups * work.gemms[0].m * work.gemms[0].n
    special = scores * _SPECIAL_CYCLES / np.asarray(table["exponential_rate"], dtype=np.float64)
    return np.where(table["simt"], np.maximum(special, work.vector_cycles - EXP * scores), every)


def vector_cycles(work: Work, table: ArchitectureTable) -> Floats:
    """Cycles of an operator on the vector ALUs of each chip, (A,), whose exponentials may be faster than others'.

    Of every score of flash attention one is taken, forward and, worked out again, backward.
    """
    saved = 1.0 - 1.0 / np.asarray(table["exponential_rate"], dtype=np.float64)
    if work.flash is None or not saved.any():
        return np.full(len(table), work.vector_cycles)
    scores = work.gemms[0].groups * work.gemms[0].m * work.gemms[0].n
    return np.asarray(work.vector_cycles - saved * EXP * scores)


def _least_product_s(work: Work, table: ArchitectureTable) -> Floats:
    """Seconds of the products, (A,): at the sustained clock, on SIMT chips in a given format at its peak."""
    own = macs(table) * np.asarray(table["clock_hz"], dtype=np.float64)
    total = np.zeros(len(table))
    for gemm in work.gemms:
        rate = own
        if gemm.operands is not None:
            systolic = own * narrow_speed(table, gemm.operands) if gemm.operands in NARROW else own
            rate = np.where(table["simt"], product_flops_per_s(table, gemm.operands) / 2, systolic)
        total += gemm.macs / rate
    return total


def stays_cached(work: Work, table: ArchitectureTable) -> NDArray[np.bool_]:
    """Architectures whose cache holds all tensors of an operator, (A,); what is rearranged before lies there twice."""
    if work.flash is None or not work.flash.warm:
        return np.zeros(len(table), dtype=np.bool_)
    tensors = work.moved_bytes + work.flash.staged_bytes / 2
    held: NDArray[np.bool_] = tensors < _CACHE_REACH * table["global_buffer_bytes"]
    return held


def _least_bytes(work: Work) -> float:
    """HBM bytes of an operator with every tensor moved once."""
    return work.stream_bytes + sum(compulsory_bytes(g) for g in work.gemms if g.traffic is Traffic.TILED)
