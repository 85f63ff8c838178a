"""Seeded scheduling instances in the format `dse-schedule/1`.

    python benchmarks/schedule_instances.py FOLDER [--size 100] [--per-family 10]

writes one file per instance. The same family, size, cores and seed give the same document on any machine.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path

from chips import Chip, random_chip
from networks import inception, layered, towers, transformer
from operator_graphs import Node, backward, training

CORES = ((1, 1), (2, 1), (2, 2), (3, 5), (4, 2), (4, 4), (8, 2), (8, 8), (16, 4), (64, 64))
"""Tensor and vector cores of the instances, in turn."""

_Graph = Callable[[random.Random, int], list[Node]]
"""A network of so many repeated blocks (layers, modules, ...)."""


class Family(StrEnum):
    """What kind of operator graph."""

    TRANSFORMER_FORWARD = "transformer-forward"
    TRANSFORMER_BACKWARD = "transformer-backward"
    TRANSFORMER_TRAINING = "transformer-training"
    MOE_FORWARD = "moe-forward"
    MOE_TRAINING = "moe-training"
    INCEPTION_FORWARD = "inception-forward"
    INCEPTION_BACKWARD = "inception-backward"
    INCEPTION_TRAINING = "inception-training"
    TOWERS = "towers"
    RANDOM = "random"


TRAINING = (Family.TRANSFORMER_TRAINING, Family.MOE_TRAINING, Family.INCEPTION_TRAINING)
"""The families whose instances of about 100 operators the project sets itself as target."""


def instance(
    family: Family, size: int, cores: tuple[int, int], seed: int, *, core_pairing: bool = False
) -> dict[str, object]:
    """A document of `size` operators on `cores` (tensor cores, vector cores).

    A network is as many whole blocks as it takes and then cut after `size` operators in topological order.
    """
    rng = random.Random(f"{family.value}/{size}/{cores}/{seed}")
    chip = random_chip(rng, *cores)
    nodes = _nodes(family, size, rng.random())
    names = {node.name for node in nodes}
    return {
        "format": "dse-schedule/1",
        "name": f"{family.value}-n{len(nodes)}-tc{cores[0]}-vc{cores[1]}-{seed}",
        "num_tensor_cores": cores[0],
        "num_vector_cores": cores[1],
        "core_pairing": core_pairing,
        "ops": [_operator(node, chip) for node in nodes],
        "edges": [[before, node.name] for node in nodes for before in node.after if before in names],
    }


def instances(families: Sequence[Family], size: int, per_family: int) -> Iterator[dict[str, object]]:
    """`per_family` documents of every family, the core counts and seeds in turn."""
    for family in families:
        for seed in range(per_family):
            yield instance(family, size, CORES[seed % len(CORES)], seed)


def _nodes(family: Family, size: int, seed: float) -> list[Node]:
    """The smallest network of the family with at least `size` operators, cut to that size."""
    build, blocks = _GRAPHS[family], 1
    while len(nodes := build(random.Random(seed), blocks)) < size:
        blocks += 1
    return nodes[:size]


def _operator(node: Node, chip: Chip) -> dict[str, object]:
    return {
        "id": node.name,
        "unit": node.work.unit,
        "latency_s": chip.single_s(node.work),
        "parallel_latency_s": chip.parallel_s(node.work),
    }


def _then(change: Callable[[list[Node]], list[Node]], forward: _Graph) -> _Graph:
    return lambda rng, blocks: change(forward(rng, blocks))


_moe = partial(transformer, experts=True)
_GRAPHS: dict[Family, _Graph] = {
    Family.TRANSFORMER_FORWARD: transformer,
    Family.TRANSFORMER_BACKWARD: _then(backward, transformer),
    Family.TRANSFORMER_TRAINING: _then(training, transformer),
    Family.MOE_FORWARD: _moe,
    Family.MOE_TRAINING: _then(training, _moe),
    Family.INCEPTION_FORWARD: inception,
    Family.INCEPTION_BACKWARD: _then(backward, inception),
    Family.INCEPTION_TRAINING: _then(training, inception),
    Family.TOWERS: towers,
    Family.RANDOM: layered,
}


def main() -> None:
    """Write instances of every family to a folder."""
    parser = argparse.ArgumentParser(description="Write seeded scheduling instances.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=100, help="operators of every instance (default 100)")
    parser.add_argument("--per-family", type=int, default=10, help="instances of every family (default 10)")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for document in instances(tuple(Family), arguments.size, arguments.per_family):
        text = json.dumps(document, indent=1) + "\n"
        (arguments.folder / f"{document['name']}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
