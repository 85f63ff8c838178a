"""Forward graphs of the benchmark's networks; shapes are drawn from a seeded generator."""

from __future__ import annotations

import random
from dataclasses import dataclass

from operator_graphs import Graph, Node


@dataclass(frozen=True)
class Transformer:
    """Shape of one transformer layer on one device: tokens, width, heads, hidden width, experts (0: dense)."""

    tokens: int
    width: int
    heads: int
    hidden: int
    experts: int = 0


def transformer(rng: random.Random, layers: int, *, experts: bool = False) -> list[Node]:
    """Transformer layers, dense or with a mixture of experts that receive unequal shares of the tokens."""
    width = rng.choice([768, 1024, 2048, 4096])
    shape = Transformer(
        tokens=rng.choice([512, 1024, 2048]),
        width=width,
        heads=width // rng.choice([64, 128]),
        hidden=width * rng.choice([2, 4]),
        experts=rng.choice([4, 8]) if experts else 0,
    )
    graph, last = Graph(), None
    for layer in range(layers):
        last = _layer(graph, rng, shape, f"l{layer}_", last)
    return graph.nodes


def _layer(graph: Graph, rng: random.Random, shape: Transformer, p: str, last: str | None) -> str:
    size, width, heads = shape.tokens * shape.width, shape.width, shape.heads
    entry = (last,) if last else ()
    norm = graph.vector(f"{p}ln1", entry, size, 6)
    q, k, v = (graph.linear(f"{p}{name}", norm, shape.tokens, width, width) for name in "qkv")
    score = graph.product(f"{p}qk", (q, k), heads, shape.tokens, width // heads, shape.tokens)
    soft = graph.vector(f"{p}softmax", (score,), heads * shape.tokens**2, 5)
    value = graph.product(f"{p}av", (soft, v), heads, shape.tokens, shape.tokens, width // heads)
    out = graph.linear(f"{p}proj", value, shape.tokens, width, width)
    residual = graph.vector(f"{p}res1", (*entry, out), size, 2)
    norm = graph.vector(f"{p}ln2", (residual,), size, 6)
    ends = _experts(graph, rng, shape, p, norm) if shape.experts else _mlp(graph, shape, p, norm)
    return graph.vector(f"{p}res2", (residual, *ends), size, 2 if len(ends) == 1 else 3)


def _mlp(graph: Graph, shape: Transformer, p: str, norm: str) -> list[str]:
    up = graph.linear(f"{p}fc1", norm, shape.tokens, shape.width, shape.hidden, fused=True)
    return [graph.linear(f"{p}fc2", up, shape.tokens, shape.hidden, shape.width)]


def _experts(graph: Graph, rng: random.Random, shape: Transformer, p: str, norm: str) -> list[str]:
    router = graph.vector(f"{p}router", (norm,), shape.tokens * shape.experts, 5)
    weights = [rng.uniform(0.5, 1.5) for _ in range(shape.experts)]
    ends = []
    for i, weight in enumerate(weights):
        tokens = max(1, round(2 * shape.tokens * weight / sum(weights)))
        up = graph.linear(f"{p}fc1_{i}", router, tokens, shape.width, shape.hidden, fused=True)
        ends.append(graph.linear(f"{p}fc2_{i}", up, tokens, shape.hidden, shape.width))
    return ends


def inception(rng: random.Random, modules: int) -> list[Node]:
    """Inception modules: 1x1, 3x3, 5x5 and pooling branches, concatenated."""
    pixels, channels = rng.choice([(14 * 14, 512), (28 * 28, 256), (7 * 7, 832)])
    pixels *= rng.choice([1, 4, 16])
    graph = Graph()
    last = graph.vector("stem", (), pixels * channels)
    for module in range(modules):
        last, channels = _inception_module(graph, rng, f"m{module}_", last, pixels, channels)
    return graph.nodes


def _inception_module(
    graph: Graph, rng: random.Random, p: str, last: str, pixels: int, channels: int
) -> tuple[str, int]:
    """One module; a convolution is a product over its window. Also the channels it hands on."""
    direct, pooled = rng.choice([64, 128, 192]), rng.choice([32, 64])
    ends, produced = [graph.linear(f"{p}1x1", last, pixels, channels, direct, fused=True)], direct + pooled
    for window, most in ((3, 320), (5, 128)):
        columns = rng.choice([most // 2, most])
        reduced = graph.linear(f"{p}{window}x{window}r", last, pixels, channels, columns // 2, fused=True)
        inner = window**2 * (columns // 2)
        ends.append(graph.linear(f"{p}{window}x{window}", reduced, pixels, inner, columns, fused=True))
        produced += columns
    pool = graph.vector(f"{p}pool", (last,), pixels * channels, 9)
    ends.append(graph.linear(f"{p}poolp", pool, pixels, channels, pooled, fused=True))
    return graph.vector(f"{p}cat", ends, pixels * produced), produced


def towers(rng: random.Random, depth: int) -> list[Node]:
    """A recommendation network: towers of several widths side by side, then a common top."""
    batch, graph, ends = rng.choice([512, 2048]), Graph(), []
    for tower in range(rng.choice([3, 4, 6])):
        width = rng.choice([256, 512, 1024])
        last = graph.vector(f"t{tower}_in", (), batch * width, 2)
        for i in range(depth):
            last = graph.linear(f"t{tower}_fc{i}", last, batch, width, width, fused=i % 2 == 0)
        ends.append((last, width))
    joined = sum(width for _, width in ends)
    concat = graph.vector("concat", [name for name, _ in ends], batch * joined)
    top = graph.linear("top1", concat, batch, joined, 512, fused=True)
    graph.linear("top2", top, batch, 512, 128)
    return graph.nodes


def layered(rng: random.Random, size: int) -> list[Node]:
    """A random graph: every operator reads one to three of the eight before it."""
    graph, names = Graph(), ["o0"]
    graph.vector("o0", (), 2**18)
    for i in range(1, size):
        recent = names[-8:]
        after = rng.sample(recent, min(len(recent), rng.choice([1, 1, 2, 3])))
        names.append(_random_operator(graph, rng, f"o{i}", after))
    return graph.nodes


def _random_operator(graph: Graph, rng: random.Random, name: str, after: list[str]) -> str:
    rows, inner, columns = (rng.choice([64, 128, 256, 512, 1024]) for _ in range(3))
    kind = rng.choice(["linear", "linear", "fused", "product", "vector"])
    if kind == "vector":
        return graph.vector(name, after, rows * inner * rng.choice([1, 4]), rng.choice([1, 2, 6]))
    if kind == "product" and len(after) > 1:
        return graph.product(name, (after[0], after[1]), rng.choice([1, 8]), rows, inner, columns)
    return graph.linear(name, after[0], rows, inner, columns, fused=kind == "fused")
