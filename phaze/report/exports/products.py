"""The matrix products of a workload, each once: what simulators of tensor cores take."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from phaze.workload.work import Gemm, LayerChain


@dataclass(frozen=True, slots=True)
class Product:
    """`times` independent products (m x k) times (k x n) of one iteration over one microbatch on one device.

    A convolution is the product over its window. `name`: letters, digits and `_`, of the operator met first.
    """

    name: str
    m: int
    k: int
    n: int
    times: int


def products(chain: LayerChain) -> tuple[Product, ...]:
    """All products of a chain, forward and backward, equal ones together, in the order in which they are met."""
    names: dict[tuple[int, int, int], str] = {}
    times: Counter[tuple[int, int, int]] = Counter()
    often = Counter(chain.index)
    for position, layer in enumerate(chain.layers):
        for part in filter(None, (layer.forward, layer.backward)):
            for work in part.works:
                for gemm in work.gemms:
                    names.setdefault(_shape(gemm), _word(f"{layer.kind}_{work.name}"))
                    times[_shape(gemm)] += gemm.groups * often[position]
    return tuple(
        Product(f"p{number}_{name}", *shape, times[shape])
        for number, (shape, name) in enumerate(names.items())
    )


def _shape(gemm: Gemm) -> tuple[int, int, int]:
    return (gemm.m, gemm.k, gemm.n)


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
