"""Names of operators: the dotted path of the module that calls them, and what they do there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from phaze.workload.exported.program import Node


def label_nodes(
    nodes: Iterable[Node], is_work: Callable[[Node], bool], taken: Collection[str]
) -> dict[str, str]:
    """Name of each node's operator, by node name.

    A module that makes one call that is work gives it its own path (`layers.3.mlp.up`); all others are
    called after their operator within the module (`layers.3.add`, `layers.3.add_2`). No two are the same,
    and none is in `taken`.
    """
    nodes = tuple(nodes)
    calls = Counter(node.module for node in nodes if is_work(node))
    parents = {path for node in nodes for path in _above(node.module)}
    used, numbers = set(taken), Counter[str]()
    labels = {}
    for node in nodes:
        alone = calls[node.module] == 1 and is_work(node) and node.module and node.module not in parents
        operator = node.operator.strip("_")
        name = node.module if alone else f"{node.module}.{operator}" if node.module else operator
        labels[node.name] = _free(name, used, numbers)
    return labels


def _above(path: str) -> Iterable[str]:
    """Paths of the modules around a module."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _free(name: str, used: set[str], numbers: Counter[str]) -> str:
    """The name, numbered until it is free; takes it."""
    chosen = name
    while chosen in used:
        numbers[name] += 1
        chosen = f"{name}_{numbers[name] + 1}"
    used.add(chosen)
    return chosen
