"""Rules of the indexer of sparse attention, which chooses keys (DeepSeek-V3.2, arXiv 2512.02556, section 2.1).

Some narrow heads score every key before the query, their scores are cut at zero and added up with a weight of the query
for each head, and the largest few of all sums are chosen. The scores stay on chip, as those of attention do; keys of
the indexer have a cache of their own. Products run in the workload's format, though the published kernels take fp8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phaze.workload.operators.operator_graph import Operator
from phaze.workload.operators.operator_steps import OperatorContext, Step, flag, gradient_of, integer
from phaze.workload.work import Gemm, Traffic, Unit, Work

CHOICE_BYTES = 4  # a place, int32
_PER_PRODUCT = 2.0  # cut at zero, multiply-add
_PER_SCORE = 2.0  # compared with the least of the chosen, counted (radix selection)


@dataclass(frozen=True, slots=True)
class _Scored:
    """Sizes: sequences, heads, queries and keys of a sequence, elements of a head, bytes of an element of queries."""

    sequences: int
    heads: int
    queries: int
    keys: int
    size: int
    each: int
    kept: int

    @property
    def macs(self) -> int:
        """Multiply-adds of all scores."""
        return self.sequences * self.heads * self.queries * self.keys * self.size

    @property
    def cycles(self) -> float:
        """Element-wise work on all scores."""
        sums = self.sequences * self.queries * self.keys
        return sums * (self.heads * _PER_PRODUCT + _PER_SCORE)


def _scored(op: Operator, ctx: OperatorContext) -> _Scored:
    (batch, queries, width), (_, keys, _) = (ctx.shape(t) for t in op.inputs[:2])
    heads = integer(op, "heads", 1)
    each, kept = (ctx.tensors[t].element_bytes for t in op.inputs[:2])
    return _Scored(batch, heads, queries, keys, width // heads, each, kept)


def index_macs(op: Operator, ctx: OperatorContext) -> int:
    """Multiply-adds of the scores."""
    return _scored(op, ctx).macs


def _product(s: _Scored, m: int, k: int, n: int) -> Gemm:
    left, right, result = (float(s.each * s.sequences * size) for size in (m * k, k * n, m * n))
    return Gemm(s.sequences, m, k, n, left, right, result, Traffic.FUSED)


def index_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Score all keys, all heads of a query as rows of one product, and choose."""
    s, out = _scored(op, ctx), op.outputs[0]
    reads, writes = ctx.activations(op.inputs), {out: ctx.bytes(out)}
    gemms = (_product(s, s.heads * s.queries, s.size, s.keys),)
    moved = sum(reads.values()) + sum(writes.values())
    cached = flag(op, "cached")
    work = Work(op.name, op.kind.value, Unit.TENSOR_VECTOR, gemms, s.cycles, moved, of_cache=cached)
    return Step(op.name, op.kind, work, reads, writes)


def index_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Keep the inputs: scores are worked out again."""
    return ctx.activations(op.inputs)


def index_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Scores again, and the gradients of queries and keys: the sums are trained to be those of attention."""
    s, out = _scored(op, ctx), op.outputs[0]
    reads = {gradients[out]: ctx.bytes(out)} | ctx.activations(op.inputs)
    writes = {gradient_of(op, x): ctx.bytes(x) for x in op.inputs}
    rows = s.heads * s.queries
    shapes = (rows, s.size, s.keys), (rows, s.keys, s.size), (s.keys, rows, s.size)
    gemms = tuple(_product(s, *shape) for shape in shapes)
    moved = sum(reads.values()) + sum(writes.values())
    name = f"{op.name}.dX"
    work = Work(name, op.kind.value, Unit.TENSOR_VECTOR, gemms, 2 * s.cycles, moved)
    return (Step(name, op.kind, work, reads, writes),)
