"""Matrix products; transposed parameters stay flags, so that tied weights stay one parameter."""

from __future__ import annotations

from math import prod

from phaze.workload.exported.lowering import Lowering
from phaze.workload.exported.program import Node
from phaze.workload.ir import OpKind


def linear(low: Lowering, node: Node) -> str:
    """x W' + b."""
    factors = [low.tensor(node, "input"), low.tensor(node, "weight")]
    return low.add_bias(node, low.add(node, OpKind.MATMUL, factors, transpose_b=True))


def product(left: str, right: str, bias: str, low: Lowering, node: Node) -> str:
    """A product of the two named arguments, plus the third; vectors become matrices of one row or column."""
    a, b, shape = low.tensor(node, left), low.tensor(node, right), low.shape_of(node)
    full = shape
    if len(low.shape(b)) == 1:
        b, full = low.view(node, b, (*low.shape(b), 1), "column"), (*full, 1)
    if len(low.shape(a)) == 1:
        a, full = low.view(node, a, (1, *low.shape(a)), "row"), (*full[:-1], 1, full[-1])
    stored = low.transposes.get(b, b)
    made = low.add(node, OpKind.MATMUL, [a, stored], shape=full, transpose_b=stored != b)
    return low.add_bias(node, low.view(node, made, shape, "flat"), bias)


def einsum(low: Lowering, node: Node) -> str:
    """A contraction of two tensors as views around one product; without a sum, an element-wise product."""
    terms, result = _equation(low, node)
    tensors = low.operands(node.reads())
    if len(tensors) != len(terms):
        raise low.error(node, "multiplies with a constant, which is not supported")
    if len(tensors) == 1:
        if set(terms[0]) == set(result):
            return low.add(node, OpKind.VIEW, tensors)
        return low.add(node, OpKind.REDUCE, tensors, function="sum")
    left, right = terms
    size: dict[str, int] = {}
    for term, tensor in zip(terms, tensors, strict=True):
        size |= dict(zip(term, low.shape(tensor), strict=True))
    shared = [c for c in left if c in right]
    batch, inner = [c for c in shared if c in result], [c for c in shared if c not in result]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    if not set(rows + columns) <= set(result):
        raise low.error(node, f"sums one operand alone ({node.get('equation')}), which is not supported")
    if not inner:
        return low.add(node, OpKind.ELEMENTWISE, tensors, function="mul")
    groups, m, k, n = (prod(size[c] for c in letters) for letters in (batch, rows, inner, columns))
    outer = (groups,) if batch else ()
    a = low.view(node, tensors[0], (*outer, m, k), "left")
    stored = low.is_matrix(tensors[1]) and list(right) == columns + inner
    b = tensors[1] if stored else low.view(node, tensors[1], (*outer, k, n), "right")
    made = low.add(node, OpKind.MATMUL, [a, b], step="product", shape=(*outer, m, n), transpose_b=stored)
    return low.add(node, OpKind.VIEW, [made])


def _equation(low: Lowering, node: Node) -> tuple[list[str], str]:
    """Letters of the operands and of the result. Raises InputError for what has no plain letters."""
    text = str(node.get("equation", "")).replace(" ", "")
    operands, arrow, result = text.partition("->")
    terms = operands.split(",")
    letters = "".join(terms)
    if not arrow:
        result = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if len(terms) > 2 or "." in text or any(len(set(term)) < len(term) for term in terms):
        raise low.error(node, f"has an equation that is not supported: {text}")
    return terms, result
