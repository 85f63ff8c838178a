"""Converters of operators that multiply matrices: products, Einsum, convolutions, integer products, recurrent layers.

Transposes stay flags, so that tied weights stay one parameter. Pooling stands with convolutions: kernels, strides,
dilations and padding are made explicit. LSTM, GRU and RNN are unrolled over the length of their sequence. Products on
8-bit integers are followed by one scaling of the result.

A stored integer tensor that is only made real (DequantizeLinear) is a parameter of its stored size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from onnx import NodeProto

from phaze.workload.onnx.batch_axes import Shape
from phaze.workload.onnx.onnx_lowering import Lowering
from phaze.workload.operators.contractions import contract, einsum_labels
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.operators.recurrent_layers import (
    GATES,
    STATES,
    Cell,
    Functions,
    State,
    Weights,
    recurrent_layer,
)


def convert_matmul(low: Lowering, node: NodeProto) -> None:
    """MatMul; a vector on the right becomes a matrix of one column."""
    left, right = node.input
    out, shape = node.output[0], low.shape(node.output[0])
    if len(low.shape(left)) < 2:
        raise low.error(node, "has a vector as its left operand, which is not supported")
    stored = _stored_transposed(low, right)
    factors = [low.tensor(left), low.tensor(stored or right)]
    if stored is not None:
        low.emit(node, OpKind.MATMUL, factors, transpose_b=True)
    elif len(low.shape(right)) > 1:
        low.emit(node, OpKind.MATMUL, factors)
    else:
        factors[1] = low.builder.add(f"{out}.column", OpKind.VIEW, factors[1:], (*low.shape(right), 1))
        product = low.builder.add(f"{out}.product", OpKind.MATMUL, factors, (*shape, 1))
        low.emit(node, OpKind.VIEW, [product])


def _stored_transposed(low: Lowering, name: str) -> str | None:
    """The constant whose plain transpose this constant matrix is, if it is one."""
    maker = low.makers.get(name)
    if name in low.graph.live or maker is None or maker.op_type != "Transpose" or len(low.shape(name)) != 2:
        return None
    return maker.input[0] if low.attributes(maker).get("perm", [1, 0]) == [1, 0] else None


def convert_gemm(low: Lowering, node: NodeProto) -> None:
    """Gemm, alpha A' B' + beta C: a product, and an addition where there is a C."""
    attributes, out = low.attributes(node), node.output[0]
    factors = [low.tensor(name) for name in node.input[:2]]
    flags = {
        flag: True
        for flag, key in (("transpose_a", "transA"), ("transpose_b", "transB"))
        if attributes.get(key)
    }
    bias = low.tensor(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    name = out if bias is None else f"{out}.product"
    low.builder.add(name, OpKind.MATMUL, factors, low.shape(out), low.element_bytes(out), **flags)
    if bias is not None:
        low.emit(node, OpKind.ELEMENTWISE, [name, bias], function="add")


def convert_einsum(low: Lowering, node: NodeProto) -> None:
    """Operands from left to right; labels that stand in one operand alone are summed before."""
    equation, ranks = str(low.attributes(node)["equation"]), [len(low.shape(name)) for name in node.input]
    terms, result = einsum_labels(equation, ranks)
    operands = [(low.tensor(name), term) for name, term in zip(node.input, terms, strict=True)]
    low.emit(node, OpKind.VIEW, [contract(low.builder, node.output[0], operands, result)])


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


SUM_BYTES = 4  # products of 8-bit integers add up in 32 bits


def convert_scaling(low: Lowering, node: NodeProto) -> None:
    """QuantizeLinear and DequantizeLinear: one pass; the scales are no parameters that are trained."""
    low.emit(node, OpKind.ELEMENTWISE, [low.tensor(node.input[0])], function="scale")


def convert_integer_product(low: Lowering, node: NodeProto) -> None:
    """MatMulInteger: its result keeps 32 bits."""
    low.emit(node, OpKind.MATMUL, [low.tensor(name) for name in node.input[:2]])


def convert_integer_convolution(low: Lowering, node: NodeProto) -> None:
    """ConvInteger: its result keeps 32 bits."""
    convolve(low, node, (node.input[0], node.input[1]), node.output[0], SUM_BYTES)


def convert_scaled_product(low: Lowering, node: NodeProto) -> None:
    """QLinearMatMul: a product, scaled to 8 bits."""
    out, factors = node.output[0], [low.tensor(node.input[i]) for i in (0, 3)]
    product = low.builder.add(f"{out}.product", OpKind.MATMUL, factors, low.shape(out), SUM_BYTES)
    low.emit(node, OpKind.ELEMENTWISE, [product], function="scale")


def convert_scaled_convolution(low: Lowering, node: NodeProto) -> None:
    """QLinearConv: a convolution, its bias, scaled to 8 bits."""
    out = node.output[0]
    name = convolve(low, node, (node.input[0], node.input[3]), f"{out}.product", SUM_BYTES)
    if len(node.input) > 8 and node.input[8]:
        filters = low.shape(out)[1]
        bias = low.parameter(node.input[8], (filters,) + (1,) * (len(low.shape(out)) - 2))
        name = low.builder.add(
            f"{out}.biased", OpKind.ELEMENTWISE, [name, bias], low.shape(out), SUM_BYTES, function="add"
        )
    low.emit(node, OpKind.ELEMENTWISE, [name], function="scale")


def convert_dynamic_quantisation(low: Lowering, node: NodeProto) -> None:
    """DynamicQuantizeLinear: range of all numbers, then a scaling by it."""
    x, out = node.input[0], node.output[0]
    ends = [
        low.builder.add(f"{out}.{function}", OpKind.REDUCE, [x], (), function=function)
        for function in ("max", "min")
    ]
    for name in node.output[1:]:
        low.builder.add(name, OpKind.VIEW, ends, low.shape(name), low.element_bytes(name))
    low.emit(node, OpKind.ELEMENTWISE, [x, *ends], function="scale")


_CELLS: Mapping[str, Cell] = MappingProxyType(
    {"LSTM": Cell.LSTM, "GRU": Cell.GRU_RESET_FIRST, "RNN": Cell.RNN}
)

_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "affine": "scale",
        "elu": "elu",
        "hardsigmoid": "hard_sigmoid",
        "leakyrelu": "leaky_relu",
        "relu": "relu",
        "scaledtanh": "tanh",
        "sigmoid": "sigmoid",
        "softplus": "softplus",
        "softsign": "div",
        "tanh": "tanh",
        "thresholdedrelu": "relu",
    }
)
"""Activation functions of the standard, which ignores their case, as `elementwise_cycles.FUNCTIONS` calls them."""


def convert_recurrent(low: Lowering, node: NodeProto) -> None:
    """One layer in one or both directions. Lengths of single sequences are not used: all are padded."""
    attributes = low.attributes(node)
    if (len(node.input) > 7 and node.input[7]) or attributes.get("input_forget"):
        raise low.error(node, "has peepholes or coupled gates, which are not supported")
    cell = Cell.GRU if attributes.get("linear_before_reset") else _CELLS[node.op_type]
    base = next(filter(None, node.output))
    first, layout = low.tensor(node.input[0]), int(str(attributes.get("layout", 0)))
    shape = low.shape(node.input[0])
    batch, steps = shape[1 - layout], shape[layout]
    x = low.builder.add(f"{base}.x", OpKind.VIEW, [first], (batch, steps, shape[2])) if not layout else first
    weights = _weights(low, node, base, GATES[cell])
    states = _states(low, node, base, (batch, len(weights)), STATES[cell])
    reverse = {"forward": [False], "reverse": [True]}.get(
        str(attributes.get("direction", "forward")), [False, True]
    )
    functions = _functions(node.op_type, attributes.get("activations"), len(weights))
    made = [
        recurrent_layer(
            low.builder,
            f"{base}.{i}",
            cell,
            x,
            weight,
            state=states[i],
            reverse=reverse[i],
            functions=functions[i],
        )
        for i, weight in enumerate(weights)
    ]
    results = [[layer.sequence for layer in made], *zip(*(layer.state for layer in made), strict=True)]
    for name, parts in zip(node.output, results, strict=False):
        if name in low.graph.read:
            low.builder.add(name, OpKind.VIEW, parts, low.shape(name))


def _weights(low: Lowering, node: NodeProto, base: str, gates: int) -> list[Weights]:
    """Weights of each direction, as views of the tensors that hold those of both."""
    directions, rows, width = low.shape(node.input[1])
    if directions != (wanted := 2 if low.attributes(node).get("direction") == "bidirectional" else 1):
        raise low.error(node, f"has weights of {directions} directions, not of {wanted}")
    hidden = rows // gates
    shapes = {"input_weight": (rows, width), "recurrent_weight": (rows, hidden)}
    pieces = [
        _pieces(low, node.input[i + 1], {f"{base}.{d}.{part}": shape for d in range(directions)})
        for i, (part, shape) in enumerate(shapes.items())
    ]
    biases: tuple[str, ...] = ()
    if len(node.input) > 3 and node.input[3]:
        named = {f"{base}.{d}.bias{i}": (rows,) for d in range(directions) for i in (0, 1)}
        biases = _pieces(low, node.input[3], named)
    return [Weights(pieces[0][d], pieces[1][d], biases[2 * d : 2 * d + 2]) for d in range(directions)]


def _pieces(low: Lowering, name: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    tensor = low.tensor(name)
    return low.builder.split_into(f"{next(iter(shapes))}.pieces", tensor, shapes)


def _states(low: Lowering, node: NodeProto, base: str, sizes: tuple[int, int], count: int) -> list[State]:
    """State that each direction starts from; empty where none is computed: constants are as good as zeros."""
    batch, directions = sizes
    given = [name if name in low.graph.live else "" for name in (*node.input[5:], "", "")][:count]
    if not any(given):
        return [()] * directions
    hidden = low.shape(node.input[2])[-1]
    columns = []
    for i, name in enumerate(given):
        shapes = {f"{base}.{d}.given{i}": (batch, hidden) for d in range(directions)}
        if name:
            columns.append(low.builder.split_into(f"{base}.given{i}", name, shapes))
        else:
            columns.append(tuple(low.builder.add(n, OpKind.VIEW, (), shape) for n, shape in shapes.items()))
    return list(zip(*columns, strict=True))


def _functions(kind: str, given: object, directions: int) -> list[Functions]:
    """Element-wise functions of each direction. Raises KeyError for a name the standard does not have."""
    if not isinstance(given, Sequence) or not given:
        return [Functions()] * directions
    names = [_FUNCTIONS[(name.decode() if isinstance(name, bytes) else str(name)).lower()] for name in given]
    each = len(names) // directions
    if kind == "RNN":
        return [Functions(candidate=names[d * each]) for d in range(directions)]
    return [Functions(*names[d * each : (d + 1) * each]) for d in range(directions)]
