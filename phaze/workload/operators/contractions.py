"""Contractions by Einstein's summation: sums, one product per further operand, from left to right."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence

from phaze.workload.operators.operator_graph import GraphBuilder, OpKind


def einsum_labels(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of the operands and of the result; an ellipsis becomes digits, aligned at the end. Raises ValueError."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError("as many terms as operands are needed")
    lengths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    most = max([0, *(length for term, length in zip(terms, lengths, strict=True) if "..." in term)])
    dots = string.digits[:most]
    full = [term.replace("...", dots[most - length :]) for term, length in zip(terms, lengths, strict=True)]
    if arrow:
        return full, right.replace("...", dots)
    once = sorted(label for label in set("".join(full)) - set(dots) if "".join(full).count(label) == 1)
    return full, dots + "".join(once)


def contract(builder: GraphBuilder, out: str, operands: Sequence[tuple[str, str]], result: str) -> str:
    """Append the contraction of some (tensor, labels) down to the labels of the result, in any order of them.

    Labels that stand in one operand alone are summed before. `out`: what the operators' names begin with.
    """
    sizes: dict[str, int] = {}
    for tensor, labels in operands:
        for label, size in zip(labels, builder.shape(tensor), strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    work = _Contraction(builder, out, sizes)
    left, labels = operands[0]
    for i, operand in enumerate(operands[1:], 1):
        wanted = set("".join(term for _, term in operands[i + 1 :])) | set(result)
        left, labels = work.product(i, (left, labels), operand, wanted)
    return work.reduced(f"{out}.sum", left, labels, set(result))[0]


class _Contraction:
    """Products and sums of one contraction; `sizes` are those of the labels."""

    def __init__(self, builder: GraphBuilder, out: str, sizes: Mapping[str, int]) -> None:
        self._builder = builder
        self._out = out
        self._sizes = sizes

    def reduced(self, name: str, tensor: str, labels: str, wanted: set[str]) -> tuple[str, str]:
        """Sum over the labels that nobody wants."""
        kept = "".join(dict.fromkeys(label for label in labels if label in wanted))
        if set(kept) == set(labels):
            return tensor, labels
        return self._builder.add(name, OpKind.REDUCE, [tensor], self._shape(kept), function="sum"), kept

    def product(
        self, number: int, left: tuple[str, str], right: tuple[str, str], wanted: set[str]
    ) -> tuple[str, str]:
        """Two operands as (batch..., rows, inner) times (batch..., inner, columns)."""
        stem = f"{self._out}.{number}"
        a, first = self.reduced(f"{stem}.left", *left, wanted | set(right[1]))
        b, second = self.reduced(f"{stem}.right", *right, wanted | set(first))
        shared = [label for label in dict.fromkeys(first) if label in second]
        batch = "".join(label for label in shared if label in wanted)
        inner = "".join(label for label in shared if label not in wanted)
        rows = "".join(dict.fromkeys(label for label in first if label not in shared))
        columns = "".join(dict.fromkeys(label for label in second if label not in shared))
        labels = batch + rows + columns
        if not inner:  # nothing is summed
            return self._builder.add(
                stem, OpKind.ELEMENTWISE, [a, b], self._shape(labels), function="mul"
            ), labels
        lead, count = self._shape(batch), self._count
        a = self._builder.add(f"{stem}.a", OpKind.VIEW, [a], (*lead, count(rows), count(inner)))
        b = self._builder.add(f"{stem}.b", OpKind.VIEW, [b], (*lead, count(inner), count(columns)))
        return self._builder.add(stem, OpKind.MATMUL, [a, b], (*lead, count(rows), count(columns))), labels

    def _shape(self, labels: str) -> tuple[int, ...]:
        return tuple(self._sizes[label] for label in labels)

    def _count(self, labels: str) -> int:
        return math.prod(self._shape(labels))
