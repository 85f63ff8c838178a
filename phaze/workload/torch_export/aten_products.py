"""Operators that multiply matrices: products, attention, convolutions with the windows beside them, recurrent layers.

Transposed parameters stay flags, so that tied weights stay one parameter. Attention stands as (batch, heads,
positions, size) around the kernel's (batch, positions, width). Kernels, strides, dilations and padding are made
explicit; recurrent layers (`aten.lstm`, `gru`, `rnn_tanh`) are unrolled over the length of their sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from phaze.workload.operators.contractions import contract, einsum_labels
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.operators.recurrent_layers import (
    STATES,
    Cell,
    State,
    Unrolled,
    Weights,
    bidirectional_layer,
    recurrent_layer,
)
from phaze.workload.torch_export.aten_lowering import Lowering
from phaze.workload.torch_export.exported_program import Node, Ref, integer, number, per_axis, tensors_in


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
    tensors = [low.factor(node, name, str(i)) for i, name in enumerate(tensors_in(node.get("tensors")))]
    terms, result = einsum_labels(str(node.get("equation", "")), [len(low.shape(t)) for t in tensors])
    left, right = terms[0], terms[1] if len(terms) == 2 else ""
    if not _is_one_product(terms, result):
        made = contract(low.builder, low.label(node), list(zip(tensors, terms, strict=True)), result)
        return made if low.shape(made) == low.shape_of(node) else low.add(node, OpKind.VIEW, [made])
    size: dict[str, int] = {}
    for term, tensor in zip(terms, tensors, strict=True):
        size |= dict(zip(term, low.shape(tensor), strict=True))
    shared = [c for c in left if c in right]
    batch, inner = [c for c in shared if c in result], [c for c in shared if c not in result]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    if not inner:
        return low.add(node, OpKind.ELEMENTWISE, tensors, function="mul")
    groups, m, k, n = (prod(size[c] for c in letters) for letters in (batch, rows, inner, columns))
    outer = (groups,) if batch else ()
    a = low.view(node, tensors[0], (*outer, m, k), "left")
    stored = low.is_matrix(tensors[1]) and list(right) == columns + inner
    b = tensors[1] if stored else low.view(node, tensors[1], (*outer, k, n), "right")
    made = low.add(node, OpKind.MATMUL, [a, b], step="product", shape=(*outer, m, n), transpose_b=stored)
    return low.add(node, OpKind.VIEW, [made])


def _is_one_product(terms: Sequence[str], result: str) -> bool:
    """Whether two operands without diagonals have every label of their own in the result."""
    if len(terms) != 2 or any(len(set(term)) < len(term) for term in terms):
        return False
    return set(terms[0]) ^ set(terms[1]) <= set(result)


DROPS = "dropout_p"


def attention(low: Lowering, node: Node) -> str:
    """One flash kernel; a mask is read inside it.

    Plain products where values are of another width, and where a trained bias is added to the scores.
    """
    q, k, v = (low.tensor(node, name) for name in ("query", "key", "value"))
    mask = low.maybe(node, "attn_mask") or low.maybe(node, "attn_bias")
    bias = mask if mask in low.trained else None
    if bias is not None or low.shape(v)[-1] != low.shape(q)[-1]:
        return _plain(low, node, (q, k, v), bias)
    told: dict[str, Any] = {"window": window} if (window := node.get("window", 0)) else {}
    told |= {"score_bias": True} if node.get("scored", False) is True else {}
    heads, kv_heads = (low.shape(t)[-3] if len(low.shape(t)) > 3 else 1 for t in (q, k))
    rows = [_joined(low, node, t, step) for t, step in ((q, "q"), (k, "k"), (v, "v"))]
    made = low.add(
        node,
        OpKind.ATTENTION,
        rows,
        shape=low.shape(rows[0]),
        heads=heads,
        kv_heads=kv_heads,
        head_size=low.shape(q)[-1],
        causal=node.get("is_causal", False) is True or low.orders(node),
        dropout=bool(number(node, DROPS)),
        **told,
    )
    return low.view(node, made, low.shape_of(node), "heads")


def _joined(low: Lowering, node: Node, tensor: str, step: str) -> str:
    """(batch..., heads, positions, size) as (batch, positions, heads x size)."""
    *outer, positions, size = low.shape(tensor)
    heads = outer.pop() if len(outer) > 1 else 1
    return low.view(node, tensor, (prod(outer), positions, heads * size), step)


def _plain(low: Lowering, node: Node, inputs: tuple[str, str, str], bias: str | None) -> str:
    """Scores, scale, bias, softmax, dropout and the weighted sum; shared heads are repeated as views."""
    q, k, v = inputs
    heads = low.shape(q)[:-2]
    k, v = (low.view(node, t, (*heads, *low.shape(t)[-2:]), step) for t, step in ((k, "k"), (v, "v")))
    square = (*low.shape(q)[:-1], low.shape(k)[-2])
    scores = low.add(node, OpKind.MATMUL, [q, k], step="scores", shape=square, transpose_b=True)
    scaled = low.add(node, OpKind.ELEMENTWISE, [scores], step="scale", shape=square, function="scale")
    if bias is not None:
        scaled = low.add(
            node, OpKind.ELEMENTWISE, [scaled, bias], step="add_bias", shape=square, function="add"
        )
    weights = low.add(node, OpKind.SOFTMAX, [scaled], step="softmax", shape=square, axis=-1)
    if number(node, DROPS):
        weights = low.add(node, OpKind.ELEMENTWISE, [weights], step="drop", shape=square, function="dropout")
    return low.add(node, OpKind.MATMUL, [weights, v])


def convolution(low: Lowering, node: Node) -> str:
    """A convolution, its bias as a following addition."""
    if node.get("transposed") is True:
        return transposed_convolution(low, node)
    x, weight = low.tensor(node, "input"), low.tensor(node, "weight")
    _check_window_batch(low, node, "input")
    kernel = low.shape(weight)[2:]
    axes = len(kernel)
    dilations = per_axis(node, "dilation", axes, 1)
    made = low.add(
        node,
        OpKind.CONV,
        [x, weight],
        groups=integer(node, "groups", 1),
        kernel=kernel,
        strides=per_axis(node, "stride", axes, 1),
        dilations=dilations,
        pads=_pads(node, kernel, dilations),
    )
    return low.add_bias(node, made, trailing=axes)


def transposed_convolution(low: Lowering, node: Node) -> str:
    """A product of every input pixel with all filters, and the sum of what overlaps."""
    x, weight = low.tensor(node, "input"), low.tensor(node, "weight")
    _check_window_batch(low, node, "input")
    batch, channels, *space = low.shape(x)
    per_group, *kernel = low.shape(weight)[1:]
    groups = integer(node, "groups", 1)
    inner, columns = channels // groups, per_group * prod(kernel)
    outer = (groups,) if groups > 1 else ()
    rows = (batch, *outer, prod(space), inner)
    pixels = low.view(node, x, rows, "pixels")
    filters = low.view(node, weight, (*outer, inner, columns), "filters")
    factors, shape = [pixels, filters], (*rows[:-1], columns)
    made = low.add(node, OpKind.MATMUL, factors, step="product", shape=shape)
    summed = low.add(node, OpKind.REDUCE, [made], function="sum")
    return low.add_bias(node, summed, trailing=len(kernel))


def pool(function: str, low: Lowering, node: Node) -> str:
    """A sliding window."""
    x = low.first(node)
    _check_window_batch(low, node, "self")
    axes = len(low.shape(x)) - 2
    kernel = per_axis(node, "kernel_size", axes, 1)
    strides = per_axis(node, "stride", axes, 0)
    return low.add(
        node,
        OpKind.POOL,
        [x],
        function=function,
        kernel=kernel,
        strides=strides if any(strides) else kernel,
        pads=per_axis(node, "padding", axes, 0) * 2,
    )


def adaptive_pool(function: str, low: Lowering, node: Node) -> str:
    """Windows that divide the feature map into as many parts as the result has."""
    x = low.first(node)
    _check_window_batch(low, node, "self")
    space = tuple(zip(low.shape(x)[2:], low.shape_of(node)[2:], strict=True))
    kernel = tuple(-(-before // after) for before, after in space)
    strides = tuple(before // after for before, after in space) if prod(kernel) > 1 else kernel
    pads = (0,) * 2 * len(kernel)
    whole = all(after == 1 for _, after in space)
    strides = (1,) * len(kernel) if whole else strides
    if prod(kernel) == 1:  # as many parts as there are pixels
        return low.add(node, OpKind.VIEW, [x])
    return low.add(node, OpKind.POOL, [x], function=function, kernel=kernel, strides=strides, pads=pads)


def interpolation(neighbours: int, low: Lowering, node: Node) -> str:
    """A weighted sum of that many neighbours along each axis that changes."""
    x = low.first(node)
    space = zip(low.shape(x)[2:], low.shape_of(node)[2:], strict=True)
    kernel = tuple(neighbours if before != after else 1 for before, after in space)
    if prod(kernel) == 1:
        return low.add(node, OpKind.VIEW, [x])
    return low.add(node, OpKind.POOL, [x], function="average", kernel=kernel)


def _pads(node: Node, kernel: tuple[int, ...], dilations: tuple[int, ...]) -> tuple[int, ...]:
    """Begins, then ends; `same` puts the odd one at the end."""
    given = node.get("padding", 0)
    if given == "same":
        total = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
        return (*(t // 2 for t in total), *(t - t // 2 for t in total))
    return (0,) * 2 * len(kernel) if given == "valid" else per_axis(node, "padding", len(kernel), 0) * 2


def _check_window_batch(low: Lowering, node: Node, argument: str) -> None:
    """Windows slide over (batch, channels, ...). Raises InputError where the batch is elsewhere."""
    value = node.get(argument)
    if isinstance(value, Ref) and low.extents[value.tensor].batch_axis not in {0, None}:
        raise low.error(node, "does not keep the batch: it is not the first dimension of the input")


def recurrent(cell: Cell, low: Lowering, node: Node) -> tuple[str, ...]:
    """A stack of layers in one or both directions: its sequence, then the last states of all its layers.

    Refused are packed sequences, a sequence without a batch, and LSTMs that project their state.
    """
    batch_first = node.get("batch_first") is True
    _check_sequence_batch(low, node, 0 if batch_first else 1)
    layers = integer(node, "num_layers", 1)
    weights = _weights(low, node, layers)
    initial = _initial(low, node, cell, len(weights))
    ways = _ways(node)
    x, last = low.tensor(node, "input"), []
    if not batch_first:
        steps, batch, width = low.shape(x)
        x = low.add(node, OpKind.VIEW, [x], step="batch_first", shape=(batch, steps, width))
    for i in range(layers):
        here = slice(i * ways, (i + 1) * ways)
        made = _layer(low, f"{low.label(node)}.layer{i}", cell, x, weights[here], initial[here])
        last.append(made.state)
        x = made.sequence
        if i < layers - 1 and number(node, "dropout"):
            shape, step = low.shape(x), f"layer{i}.dropout"
            x = low.add(node, OpKind.ELEMENTWISE, [x], step=step, shape=shape, function="dropout")
    sequence = low.add(node, OpKind.VIEW, [x])
    return sequence, *(
        low.add(node, OpKind.VIEW, parts, step=f"last{j}", shape=low.shape_of(node, 1 + j))
        for j, parts in enumerate(zip(*last, strict=True))
    )


def _ways(node: Node) -> int:
    return 2 if node.get("bidirectional") is True else 1


def _layer(
    low: Lowering, name: str, cell: Cell, x: str, weights: list[Weights], initial: list[State]
) -> Unrolled:
    """One layer; `weights` and `initial` have one entry per direction."""
    if len(weights) == 1:
        return recurrent_layer(low.builder, name, cell, x, weights[0], state=initial[0])
    return bidirectional_layer(low.builder, name, cell, x, weights, state=initial[0] + initial[1])


def _weights(low: Lowering, node: Node, layers: int) -> list[Weights]:
    """Weights of each layer, and in it of each direction."""
    given = low.operands(tensors_in(node.get("params")))
    count = layers * _ways(node)
    each = 4 if node.get("has_biases") is True else 2
    if len(given) != count * each:
        raise low.error(node, f"has {len(given)} weights, not {each} per layer and direction: no projections")
    groups = (given[i : i + each] for i in range(0, len(given), each))
    return [Weights(fed, own, tuple(biases)) for fed, own, *biases in groups]


def _initial(low: Lowering, node: Node, cell: Cell, count: int) -> list[State]:
    """State that each layer and direction starts from; empty where only constants are given: as good as zeros."""
    names = list(tensors_in(node.get("hx")))[: STATES[cell]]
    given = [low.operand(name) for name in names]
    if not any(given):
        return [()] * count
    columns = []
    for i, (name, tensor) in enumerate(zip(names, given, strict=True)):
        label, (_, batch, hidden) = f"{low.label(node)}.first{i}", low.extents[name].at(low.batch)
        shapes = {f"{label}.{j}": (batch, hidden) for j in range(count)}
        if tensor is not None:
            columns.append(low.builder.split_into(label, tensor, shapes))
        else:
            columns.append(tuple(low.builder.add(n, OpKind.VIEW, (), shape) for n, shape in shapes.items()))
    return list(zip(*columns, strict=True))


def _check_sequence_batch(low: Lowering, node: Node, axis: int) -> None:
    value = node.get("input")
    if node.get("batch_sizes") is not None or not isinstance(value, Ref):
        raise low.error(node, "takes packed sequences, which are not supported; give it padded ones")
    if len(low.extents[value.tensor].shape) != 3 or low.extents[value.tensor].batch_axis not in {axis, None}:
        raise low.error(node, f"does not keep the batch: it is not dimension {axis} of the input")
