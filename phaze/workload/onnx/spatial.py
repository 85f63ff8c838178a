"""Converters of convolutions and pooling: kernels, strides, dilations and padding made explicit."""

from __future__ import annotations

from onnx import NodeProto

from phaze.workload.ir import OpKind
from phaze.workload.onnx.batch import Shape
from phaze.workload.onnx.lowering import Lowering


def convert_convolution(low: Lowering, node: NodeProto) -> None:
    """Conv, its bias as a following addition."""
    out = node.output[0]
    bias = node.input[2] if len(node.input) > 2 else ""
    name = convolve(
        low, node, (node.input[0], node.input[1]), f"{out}.product" if bias else out, low.element_bytes(out)
    )
    if bias:  # one number per filter, stored as (filters, 1, ...) it broadcasts over space
        per_filter = (low.shape(out)[1],) + (1,) * (len(low.shape(out)) - 2)
        addend = bias if bias in low.graph.live else low.parameter(bias, per_filter)
        low.emit(node, OpKind.ELEMENTWISE, [name, addend], function="add")


def convolve(low: Lowering, node: NodeProto, operands: tuple[str, str], name: str, element_bytes: int) -> str:
    """Append the convolution of a map with filters under a name. Raises InputError where they do not fit."""
    (channels, *_), kernel = low.shape(operands[0])[1:], low.shape(operands[1])
    groups = _integer(low.attributes(node).get("group", 1))
    if len(kernel) < 3 or kernel[1] * groups != channels or kernel[0] % groups:
        raise low.error(node, f"does not fit: {channels} channels, {groups} groups, weight {kernel}")
    window = _window(low, node, kernel[2:])
    factors = [low.tensor(operand) for operand in operands]
    return low.builder.add(
        name, OpKind.CONV, factors, low.shape(node.output[0]), element_bytes, groups=groups, **window
    )


def convert_pool(function: str, low: Lowering, node: NodeProto) -> None:
    """MaxPool or AveragePool."""
    kernel = tuple(_integers(low.attributes(node)["kernel_shape"]))
    low.emit(node, OpKind.POOL, [node.input[0]], function=function, **_window(low, node, kernel))


def convert_global_pool(function: str, low: Lowering, node: NodeProto) -> None:
    """Pooling over the whole feature map."""
    kernel = low.shape(node.input[0])[2:]
    size = len(kernel)
    low.emit(
        node,
        OpKind.POOL,
        [node.input[0]],
        function=function,
        kernel=kernel,
        strides=(1,) * size,
        pads=(0,) * 2 * size,
    )


def _window(low: Lowering, node: NodeProto, kernel: Shape) -> dict[str, tuple[int, ...]]:
    """Attributes of a sliding window; automatic padding is worked out."""
    attributes, axes = low.attributes(node), len(kernel)
    strides = tuple(_integers(attributes.get("strides", [1] * axes)))
    dilations = tuple(_integers(attributes.get("dilations", [1] * axes)))
    pads = tuple(_integers(attributes.get("pads", [0] * 2 * axes)))
    auto = attributes.get("auto_pad", "NOTSET")
    if auto in {"SAME_UPPER", "SAME_LOWER"}:
        space, result = low.shape(node.input[0])[2:], low.shape(node.output[0])[2:]
        total = [
            max(0, (o - 1) * s + (k - 1) * d + 1 - i)
            for i, o, k, s, d in zip(space, result, kernel, strides, dilations, strict=True)
        ]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = tuple(small + large) if auto == "SAME_UPPER" else tuple(large + small)
    elif auto == "VALID":
        pads = (0,) * 2 * axes
    found = {"kernel": tuple(kernel), "strides": strides, "pads": pads}
    return found | ({"dilations": dilations} if "Conv" in node.op_type else {})


def _integer(value: object) -> int:
    return int(str(value))


def _integers(values: object) -> list[int]:
    return [int(v) for v in values] if isinstance(values, list) else []
