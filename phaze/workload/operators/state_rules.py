"""Rules of linear attention and state-space layers: a state of every head, which tokens change one after the other.

Of a head with keys of size k and values of size v the state is a k x v matrix S. A token decays it, adds the product of
its key and value, and reads it with its query: two products of k v multiply-adds (Mamba 2, Dao and Gu, arXiv
2405.21060). The delta rule takes the old value of the key away before: one more (Gated DeltaNet, Yang et al., arXiv
2412.06464). Those are the model's FLOPs. One token after others does just that, on the vector cores. Of many tokens,
chunks of c are made at once by products on the tensor cores (the same papers, sections 6 and 3.3): scores inside a
chunk, the state after it, and what the state before it gives; the delta rule also inverts a triangle of c x c. Where
every channel has a decay of its own for each element of its state (Mamba, arXiv 2312.00752), nothing is a product:
a scan on the vector cores.

A kernel goes along a sequence with the state on chip, in fp32; backward works the states of all chunks out again, into
HBM. In inference the state stays in memory from pass to pass, in fp32 (as vLLM and SGLang keep it), in place of a
cache that grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phaze.workload.operators.elementwise_cycles import EXP
from phaze.workload.operators.operator_graph import Operator
from phaze.workload.operators.operator_steps import OperatorContext, Step, flag, gradient_of, integer
from phaze.workload.work import Gemm, Traffic, Unit, Work

STATE_BYTES = 4
_CHUNK_STATE_BYTES = 2  # of the states between chunks, as activations


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of a layer: `heads` and `key_heads` of all sequences, `tokens` of each; see the module for the rest."""

    heads: int
    key_heads: int
    tokens: int
    keys: int
    values: int
    chunk: int
    delta: bool

    @property
    def state(self) -> int:
        """Elements of all states."""
        return self.heads * self.keys * self.values

    @property
    def products(self) -> int:
        """Products of a token with the state."""
        return 3 if self.delta else 2

    @property
    def chunks(self) -> int:
        """Chunks of a sequence."""
        return -(-self.tokens // self.chunk)

    @property
    def scans(self) -> bool:
        """Whether tokens are taken one by one."""
        return self.chunk == 0 or self.tokens == 1

    @property
    def macs(self) -> int:
        """Multiply-adds that the model asks for."""
        return self.products * self.tokens * self.state


def _sizes(op: Operator, ctx: OperatorContext) -> _Sizes:
    batch, tokens, _ = ctx.shape(op.inputs[2])
    heads, keys = integer(op, "heads", 1), integer(op, "key_heads", 1)
    key, value = (integer(op, name, 1) for name in ("key_size", "value_size"))
    chunk = min(integer(op, "chunk", 0), tokens)
    return _Sizes(batch * heads, batch * keys, tokens, key, value, chunk, flag(op, "delta"))


def state_bytes(op: Operator, ctx: OperatorContext) -> float:
    """Bytes of the states that stay in memory after a pass; 0 in training."""
    return float(STATE_BYTES * _sizes(op, ctx).state) if flag(op, "kept") else 0.0


def recurrence_macs(op: Operator, ctx: OperatorContext) -> int:
    """Multiply-adds of a forward pass, one token after the other: no chunk takes fewer."""
    return _sizes(op, ctx).macs


def recurrence_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Go along all sequences; each tensor is moved once, a state that is kept written, and read where it is older."""
    s, out = _sizes(op, ctx), op.outputs[0]
    reads, writes = ctx.activations(op.inputs), {out: ctx.bytes(out)}
    kept = state_bytes(op, ctx) * (2 if flag(op, "older") else 1)
    moved = sum(reads.values()) + sum(writes.values()) + ctx.parameter_bytes(op) + kept
    gemms = () if s.scans else tuple(_fused(*shape) for shape in _chunk_products(s))
    cycles = _scan_cycles(s) if s.scans else _chunk_cycles(s)
    unit = Unit.TENSOR_VECTOR if gemms else Unit.VECTOR
    work = Work(op.name, op.kind.value, unit, gemms, cycles, moved, of_cache=flag(op, "kept"))
    return Step(op.name, op.kind, work, reads, writes)


def recurrence_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Keep the inputs, and of the delta rule the inverse triangles (as flash-linear-attention does)."""
    s, kept = _sizes(op, ctx), ctx.activations(op.inputs)
    if not s.delta:
        return kept
    return kept | {f"{op.name}:inverse": float(_CHUNK_STATE_BYTES * s.heads * s.tokens * s.chunk)}


def recurrence_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Forward again, its states into HBM, and two products for each of its own, from the last chunk to the first."""
    s, out = _sizes(op, ctx), op.outputs[0]
    inputs = [x for x in op.inputs if x not in ctx.parameters]
    reads = {gradients[out]: ctx.bytes(out)} | ctx.activations(inputs)
    writes = {gradient_of(op, x): ctx.bytes(x) for x in inputs}
    shapes = [] if s.scans else _chunk_products(s)
    again = [(g, m, k, n) for g, m, k, n in shapes]
    gradient = [each for g, m, k, n in shapes for each in ((g, m, n, k), (g, k, m, n))]
    gemms = tuple(_fused(*shape) for shape in (*again, *gradient))
    cycles = 3 * (_scan_cycles(s) if s.scans else _chunk_cycles(s))
    states = 2.0 * _CHUNK_STATE_BYTES * s.state * (1 if s.scans else s.chunks)
    kept = sum(size for name, size in recurrence_saved(op, ctx).items() if name.endswith(":inverse"))
    moved = sum(reads.values()) + sum(writes.values()) + 3 * ctx.parameter_bytes(op) + states + kept
    unit = Unit.TENSOR_VECTOR if gemms else Unit.VECTOR
    return (
        Step(
            f"{op.name}.dX",
            op.kind,
            Work(f"{op.name}.dX", op.kind.value, unit, gemms, cycles, moved),
            reads,
            writes,
        ),
    )


def _chunk_products(s: _Sizes) -> tuple[tuple[int, int, int, int], ...]:
    """(groups, m, k, n) of the products of all chunks; scores of the state-space form are those of key heads."""
    heads, keys, c, k, v = s.heads * s.chunks, s.key_heads * s.chunks, s.chunk, s.keys, s.values
    if not s.delta:
        return (keys, c, k, c), (heads, c, c, v), (heads, k, c, v), (heads, c, k, v)
    triangle = (heads, c, -(-c // 6), c)  # c^3 / 6 multiply-adds to invert one
    scores = (heads, c, k, c)
    return (
        *(scores, scores, triangle),
        *((heads, c, c, k), (heads, c, c, v)),  # keys and values through the inverse
        *((heads, c, k, v), (heads, c, k, v), (heads, k, c, v)),  # from the state, twice, and into it
        (heads, c, c, v),
    )


def _chunk_cycles(s: _Sizes) -> float:
    """A decay for every score, and for the state after every chunk."""
    matrices = 2 if s.delta else 1
    scores = s.heads * s.chunks * s.chunk**2 * matrices
    return scores * (EXP + 2.0) + 2.0 * s.chunks * s.state


def _scan_cycles(s: _Sizes) -> float:
    """The products and a decay of the state, which a scan works out for every element."""
    decay = EXP + 2.0 if s.chunk == 0 else 1.0
    return float(s.tokens * s.state * (s.products + decay))


def _fused(groups: int, m: int, k: int, n: int) -> Gemm:
    left, right, result = (2.0 * groups * size for size in (m * k, k * n, m * n))
    return Gemm(groups, m, k, n, left, right, result, Traffic.FUSED)
