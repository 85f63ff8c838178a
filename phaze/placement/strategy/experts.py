"""What software makes of mixtures of experts: exchanges of tokens, and rows moved once more around products."""

from __future__ import annotations

from collections.abc import Sequence, Set

from phaze.arrays import Floats
from phaze.cost.exchange import fastest_s
from phaze.hardware.network import Network
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.training.training_numerics import HALF_BYTES
from phaze.workload.work import Link, Pass

_ENDS = (OpKind.DISPATCH.value, OpKind.COMBINE.value)


def row_bytes(pass_: Pass) -> float:
    """Bytes of the rows that products of experts read and write, but for gradients of weights."""
    ends = {i for i, w in enumerate(pass_.works) if w.kind in _ENDS}
    if not ends:
        return 0.0
    turned = [(b, a) for a, b in pass_.edges]
    inside = _reached(ends, pass_.edges) & _reached(ends, turned)
    products = (g for i in inside for g in pass_.works[i].gemms)
    return float(sum(HALF_BYTES * g.groups * g.m * (g.k + g.n) for g in products))


def _reached(ends: Set[int], edges: Sequence[tuple[int, int]]) -> Set[int]:
    """Operators that can be reached from those at the ends, not through another one."""
    after: dict[int, list[int]] = {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    found: set[int] = set()
    open_ = list(ends)
    while open_:
        new = [b for b in after.get(open_.pop(), ()) if b not in found and b not in ends]
        found.update(new)
        open_ += new
    return found


def merged_s(link: Link, network: Network, link_bytes_per_s: Floats) -> Floats:
    """An exchange whose equal rows travel as one, (A,) seconds on chips whose own links have bandwidths (A,)."""
    size, stride = link.group.size, link.group.stride
    return fastest_s(
        link.collective, link.payload_bytes, network, link_bytes_per_s, size, stride, link.copies
    )
