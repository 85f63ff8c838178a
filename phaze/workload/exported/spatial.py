"""Convolutions, pooling and interpolation: kernels, strides, dilations and padding made explicit."""

from __future__ import annotations

from math import prod

from phaze.workload.exported.arguments import integer, per_axis
from phaze.workload.exported.lowering import Lowering
from phaze.workload.exported.program import Node, Ref
from phaze.workload.ir import OpKind


def convolution(low: Lowering, node: Node) -> str:
    """A convolution, its bias as a following addition."""
    if node.get("transposed") is True:
        return transposed_convolution(low, node)
    x, weight = low.tensor(node, "input"), low.tensor(node, "weight")
    _check_batch(low, node, "input")
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
    _check_batch(low, node, "input")
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
    _check_batch(low, node, "self")
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
    _check_batch(low, node, "self")
    space = tuple(zip(low.shape(x)[2:], low.shape_of(node)[2:], strict=True))
    kernel = tuple(-(-before // after) for before, after in space)
    strides = tuple(before // after for before, after in space) if prod(kernel) > 1 else kernel
    pads = (0,) * 2 * len(kernel)
    whole = all(after == 1 for _, after in space)
    strides = (1,) * len(kernel) if whole else strides
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


def _check_batch(low: Lowering, node: Node, argument: str) -> None:
    """Windows slide over (batch, channels, ...). Raises InputError where the batch is elsewhere."""
    value = node.get(argument)
    if isinstance(value, Ref) and low.extents[value.tensor].batch_axis not in {0, None}:
        raise low.error(node, "does not keep the batch: it is not the first dimension of the input")
