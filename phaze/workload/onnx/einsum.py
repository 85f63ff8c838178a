"""Einsum as sums, one product per further operand, and a rearrangement."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence

from onnx import NodeProto

from phaze.workload.ir import OpKind
from phaze.workload.onnx.lowering import Lowering


def convert_einsum(low: Lowering, node: NodeProto) -> None:
    """Operands from left to right; labels that stand in one operand alone are summed before."""
    shapes = [low.shape(name) for name in node.input]
    terms, result = _labels(str(low.attributes(node)["equation"]), [len(shape) for shape in shapes])
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    work = _Contraction(low, node.output[0], sizes)
    left, label = low.tensor(node.input[0]), terms[0]
    for i, name in enumerate(node.input[1:], 1):
        wanted = set("".join(terms[i + 1 :])) | set(result)
        left, label = work.product(i, (left, label), (low.tensor(name), terms[i]), wanted)
    left, _ = work.reduced(f"{node.output[0]}.sum", left, label, set(result))
    low.emit(node, OpKind.VIEW, [left])


def _labels(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of the operands and of the result; an ellipsis becomes digits, aligned at the end."""
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


class _Contraction:
    """Products and sums of one Einsum; `sizes` are those of the labels."""

    def __init__(self, low: Lowering, out: str, sizes: Mapping[str, int]) -> None:
        self._builder = low.builder
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
        if not inner and not (rows and columns):
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
