"""Single operators as the work that the model costs, made by the same rules as a whole model's."""

from __future__ import annotations

from phaze.workload.degrees import Group, Parallel
from phaze.workload.ir import GraphBuilder, OpKind
from phaze.workload.rules import RULES
from phaze.workload.steps import Context
from phaze.workload.work import Collective, Link, Unit, Work


def product(batch: int, m: int, k: int, n: int, element_bytes: int = 2) -> Work:
    """`batch` independent products (m x k) (k x n)."""
    lead = (batch,) if batch > 1 else ()
    g = GraphBuilder("product")
    a = g.input("a", (*lead, m, k), element_bytes)
    b = g.input("b", (*lead, k, n), element_bytes)
    g.add("y", OpKind.MATMUL, (a, b), (*lead, m, n), element_bytes)
    return _only(g)


def attention(
    batch: int, queries: int, keys: int, heads: int, kv_heads: int, head_size: int, *, causal: bool
) -> Work:
    """Flash attention in 16 bits."""
    g = GraphBuilder("attention")
    q = g.input("q", (batch, queries, heads * head_size))
    k, v = (g.input(letter, (batch, keys, kv_heads * head_size)) for letter in "kv")
    g.add(
        "y",
        OpKind.ATTENTION,
        (q, k, v),
        (batch, queries, heads * head_size),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        causal=causal,
    )
    return _only(g)


def elementwise(function: str, rows: int, columns: int, operands: int = 1, element_bytes: int = 2) -> Work:
    """An element-wise function of that many tensors of one shape."""
    g = GraphBuilder(function)
    inputs = [g.input(f"x{i}", (rows, columns), element_bytes) for i in range(operands)]
    g.add("y", OpKind.ELEMENTWISE, inputs, (rows, columns), element_bytes, function=function)
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


def _only(builder: GraphBuilder) -> Work:
    """Work of the only operator of a graph, forward."""
    graph = builder.build(("y",))
    parameters = {t.name for t in graph.parameters()}
    ctx = Context(graph.tensors, parameters, frozenset(), training=False)
    op = graph.operators[0]
    work = RULES[op.kind].forward(op, ctx).work
    if work is None:
        msg = f"operator {op.kind} does nothing"
        raise ValueError(msg)
    return work
