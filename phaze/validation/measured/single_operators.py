"""Single operators as the work that the model costs, made by the same rules as a whole model's."""

from __future__ import annotations

from dataclasses import replace

from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.operators.operator_steps import OperatorContext
from phaze.workload.operators.rule_table import RULES
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.work import Collective, Format, Link, Role, Unit, Work

Pair = tuple[int, int]
Maps = tuple[int, int, Pair]
"""Feature maps: batch, channels, height and width."""
Filters = tuple[int, Pair, Pair]
"""Filters of a convolution: their number, kernel and steps."""


def product(
    batch: int,
    m: int,
    k: int,
    n: int,
    element_bytes: int = 2,
    *,
    operands: Format | None = None,
    result_bytes: int | None = None,
) -> Work:
    """`batch` independent products (m x k) (k x n) of operands of a format.

    `element_bytes`: of an operand in memory; `result_bytes`: of a result's, the same where not given.
    """
    lead = (batch,) if batch > 1 else ()
    g = GraphBuilder("product")
    a = g.input("a", (*lead, m, k), element_bytes)
    b = g.input("b", (*lead, k, n), element_bytes)
    g.add("y", OpKind.MATMUL, (a, b), (*lead, m, n), result_bytes or element_bytes)
    work = _only(g)
    return replace(work, gemms=tuple(replace(gemm, operands=operands) for gemm in work.gemms))


def convolution(
    maps: Maps,
    filters: Filters,
    outputs: Pair,
    role: Role = Role.FORWARD,
    *,
    groups: int = 1,
    element_bytes: int = 2,
    operands: Format | None = None,
) -> Work:
    """A convolution or one of its gradients; `outputs`: height and width after it."""
    (batch, channels, inputs), (number, kernel, strides) = maps, filters
    g = GraphBuilder("convolution")
    x = g.input("x", (batch, channels, *inputs), element_bytes)
    w = g.parameter("w", (number, channels // groups, *kernel), element_bytes)
    g.add("y", OpKind.CONV, (x, w), (batch, number, *outputs), element_bytes, groups=groups, strides=strides)
    passes = (_only(g), *_backward(g))  # forward, gradient of the input, gradient of the weights
    work = passes[tuple(Role).index(role)]
    return replace(work, gemms=tuple(replace(gemm, operands=operands) for gemm in work.gemms))


def attention(
    batch: int,
    queries: int,
    keys: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    *,
    causal: bool,
    staged: bool = False,
    warm: bool = False,
    aliased: bool = False,
) -> Work:
    """Flash attention in 16 bits.

    `staged`: a kernel that rotates and sorts queries, keys and values, and reads and writes them all, belongs
    to it. `warm`: it ran on the same tensors just before. `aliased`: keys and values were the same bytes, so that
    memory is read for one of them and the chip's cache has the other.
    """
    work = _only(_attention_graph(batch, queries, keys, heads, kv_heads, head_size, causal=causal))
    if work.flash is None:
        return work
    half = 2.0 * batch * head_size * keys * kv_heads  # keys or values
    operands = 2.0 * batch * head_size * queries * heads + 2 * half
    flash = replace(work.flash, staged_bytes=2 * operands * staged, warm=warm)
    return replace(work, flash=flash, stream_bytes=work.stream_bytes - half * aliased)


def attention_gradients(
    batch: int, queries: int, keys: int, heads: int, kv_heads: int, head_size: int, *, causal: bool
) -> tuple[Work, ...]:
    """Gradients of queries, keys and values of flash attention in 16 bits, the scores worked out again."""
    return _backward(_attention_graph(batch, queries, keys, heads, kv_heads, head_size, causal=causal))


def _attention_graph(
    batch: int, queries: int, keys: int, heads: int, kv_heads: int, head_size: int, *, causal: bool
) -> GraphBuilder:
    g = GraphBuilder("attention")
    q = g.input("q", (batch, queries, heads * head_size))
    k, v = (g.input(letter, (batch, keys, kv_heads * head_size)) for letter in "kv")
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_size": head_size}
    g.add("y", OpKind.ATTENTION, (q, k, v), (batch, queries, heads * head_size), **sizes, causal=causal)
    return g


def elementwise(function: str, rows: int, columns: int, operands: int = 1, element_bytes: int = 2) -> Work:
    """An element-wise function of that many tensors of one shape."""
    g = GraphBuilder(function)
    inputs = [g.input(f"x{i}", (rows, columns), element_bytes) for i in range(operands)]
    g.add("y", OpKind.ELEMENTWISE, inputs, (rows, columns), element_bytes, function=function)
    return _only(g)


def gated(function: str, rows: int, columns: int, element_bytes: int = 2) -> Work:
    """A gated activation of a tensor twice as wide as its result."""
    g = GraphBuilder(function)
    x = g.input("x", (rows, 2 * columns), element_bytes)
    g.add("y", OpKind.ELEMENTWISE, (x,), (rows, columns), element_bytes, function=function)
    return _only(g)


def softmax(rows: int, columns: int, element_bytes: int = 2) -> Work:
    """Softmax of each row."""
    g = GraphBuilder("softmax")
    g.add(
        "y", OpKind.SOFTMAX, (g.input("x", (rows, columns), element_bytes),), (rows, columns), element_bytes
    )
    return _only(g)


def norm(function: str, rows: int, columns: int, element_bytes: int = 2) -> Work:
    """Layer (`layer`) or RMS (`rms`) normalisation of each row, with its parameters."""
    g = GraphBuilder("norm")
    x = g.input("x", (rows, columns), element_bytes)
    names = ("scale", "shift") if function == "layer" else ("scale",)
    parameters = [g.parameter(name, (columns,), element_bytes) for name in names]
    g.add("y", OpKind.NORM, (x, *parameters), (rows, columns), element_bytes, function=function)
    return _only(g)


def exchange(kind: Collective, payload_bytes: float, ranks: int) -> Work:
    """A collective among `ranks` devices; `payload_bytes` as nccl-tests counts them."""
    link = Link(kind, payload_bytes, Group(Parallel.TENSOR, ranks))
    return Work(kind.value, kind.value, Unit.LINK, link=link)


def _backward(builder: GraphBuilder) -> tuple[Work, ...]:
    """Work of the gradients of the only operator of a graph with respect to everything it reads."""
    graph = builder.build(("y",))
    op, parameters = graph.operators[0], {t.name for t in graph.parameters()}
    ctx = OperatorContext(graph.tensors, parameters, frozenset(op.inputs), training=True)
    steps = RULES[op.kind].backward(op, ctx, {"y": "d.y"})
    return tuple(step.work for step in steps if step.work is not None)


def _only(builder: GraphBuilder) -> Work:
    """Work of the only operator of a graph, forward."""
    graph = builder.build(("y",))
    parameters = {t.name for t in graph.parameters()}
    ctx = OperatorContext(graph.tensors, parameters, frozenset(), training=False)
    op = graph.operators[0]
    work = RULES[op.kind].forward(op, ctx).work
    if work is None:
        msg = f"operator {op.kind} does nothing"
        raise ValueError(msg)
    return work
