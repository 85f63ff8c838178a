"""Operators of a graph in those of the ONNX standard (opset 23), one or a few each (https://onnx.ai/onnx/operators)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, sqrt
from types import MappingProxyType

from onnx import TensorProto

from phaze.report.exports.onnx.data_movement import write_view
from phaze.report.exports.onnx.onnx_draft import Draft, NotInOnnx, Shape, integer
from phaze.workload.operators.operator_graph import Operator, OpKind

_PLAIN: Mapping[str, str] = MappingProxyType(
    {
        "abs": "Abs",
        "cast": "Round",
        "cos": "Cos",
        "dropout": "Dropout",
        "elu": "Elu",
        "erf": "Erf",
        "exp": "Exp",
        "gelu": "Gelu",
        "hard_sigmoid": "HardSigmoid",
        "hard_swish": "HardSwish",
        "leaky_relu": "LeakyRelu",
        "log": "Log",
        "neg": "Neg",
        "relu": "Relu",
        "sigmoid": "Sigmoid",
        "sin": "Sin",
        "softplus": "Softplus",
        "sqrt": "Sqrt",
        "tanh": "Tanh",
    }
)
"""Functions of one tensor."""

_BINARY: Mapping[str, str] = MappingProxyType(
    {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "prelu": "PRelu"}
)
_GATES: Mapping[str, str] = MappingProxyType(
    {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}
)
_REDUCED: Mapping[str, str] = MappingProxyType(
    {
        "mean": "ReduceMean",
        "sum": "ReduceSum",
        "max": "ReduceMax",
        "min": "ReduceMin",
        "prod": "ReduceProd",
    }
)


def write_operator(d: Draft, op: Operator) -> None:
    """Append the nodes of an operator. Raises NotInOnnx where the standard has nothing for it."""
    writer = _WRITERS.get(op.kind)
    if writer is None:
        raise NotInOnnx(str(op.kind))
    writer(d, op)


def _product(d: Draft, op: Operator) -> None:
    if "experts" in op.attributes:
        raise NotInOnnx("products of experts")
    factors, out = list(op.inputs), op.outputs[0]
    for i, flag in enumerate(("transpose_a", "transpose_b")):
        if op.attributes.get(flag):
            factors[i] = d.transposed(factors[i], f"{out}/{'ab'[i]}")
    d.node("MatMul", factors, out)


def _window(op: Operator, axes: int) -> dict[str, object]:
    """Kernel, strides and padding; a window without strides moves by one."""
    found = {"kernel_shape": op.attributes["kernel"]}
    found["strides"] = op.attributes.get("strides", (1,) * axes)
    found["pads"] = op.attributes.get("pads", (0,) * 2 * axes)
    return found


def _convolution(d: Draft, op: Operator) -> None:
    axes = len(d.shape(op.inputs[0])) - 2
    window = _window(op, axes) | {"dilations": op.attributes.get("dilations", (1,) * axes)}
    d.node("Conv", op.inputs, op.outputs[0], group=integer(op, "groups", 1), **window)


def _pool(d: Draft, op: Operator) -> None:
    """A window over a map; without strides, an interpolation between neighbours."""
    (x,), out = op.inputs, op.outputs[0]
    before, after = d.shape(x)[2:], d.shape(out)[2:]
    if "strides" not in op.attributes:
        if any(a != b and k not in (2, 4) for a, b, k in zip(before, after, _kernel(op), strict=True)):
            raise NotInOnnx("pooling without strides")
        sizes = [b / a for a, b in zip(before, after, strict=True)]
        scales = d.node("Constant", [], f"{out}/scales", value_floats=[1.0, 1.0, *sizes])
        d.node("Resize", [x, "", scales], out, mode="cubic" if 4 in _kernel(op) else "linear")
        return
    name = {"max": "MaxPool", "average": "AveragePool"}[str(op.attributes["function"])]
    window = _window(op, len(before))
    d.node(name, [x], out, ceil_mode=int(_floored(before, window) != after), **window)


def _kernel(op: Operator) -> Shape:
    kernel = op.attributes["kernel"]
    assert isinstance(kernel, tuple)
    return kernel


def _floored(space: Shape, window: Mapping[str, object]) -> Shape:
    """The map after a window, where what is left over at its end is not looked at."""
    kernel, strides, pads = (window[key] for key in ("kernel_shape", "strides", "pads"))
    assert isinstance(kernel, tuple)
    assert isinstance(strides, tuple)
    assert isinstance(pads, tuple)
    ends = pads[len(space) :]
    return tuple(
        (size + a + b - k) // s + 1
        for size, a, b, k, s in zip(space, pads, ends, kernel, strides, strict=False)
    )


def _softmax(d: Draft, op: Operator) -> None:
    d.node("Softmax", op.inputs, op.outputs[0], axis=integer(op, "axis", -1))


def _norm(d: Draft, op: Operator) -> None:
    (x, *parameters), out = op.inputs, op.outputs[0]
    function = op.attributes["function"]
    if function == "batch" and len(parameters) == 4:
        d.node("BatchNormalization", op.inputs, out)
    elif function == "layer" and parameters:
        d.node("LayerNormalization", op.inputs, out, axis=-1)
    elif function == "rms" and len(parameters) == 1:
        d.node("RMSNormalization", op.inputs, out, axis=-1)
    elif function in {"layer", "rms"} and not parameters:
        _plain_norm(d, x, out, centred=function == "layer")
    else:
        raise NotInOnnx(f"{function} norm of {len(parameters)} parameters")


def _plain_norm(d: Draft, x: str, out: str, *, centred: bool) -> None:
    """x / sqrt(mean(x^2)), of x without its mean where it is centred: the standard's own operators have a scale."""
    axes = d.whole_numbers(f"{out}/axes", [-1])
    if centred:
        mean = d.node("ReduceMean", [x, axes], f"{out}/mean", keepdims=1)
        x = d.node("Sub", [x, mean], f"{out}/centred")
    squares = d.node("Mul", [x, x], f"{out}/squares")
    mean = d.node("ReduceMean", [squares, axes], f"{out}/mean square", keepdims=1)
    added = d.node("Add", [mean, d.number("epsilon", 1e-5)], f"{out}/above zero")
    d.node("Div", [x, d.node("Sqrt", [added], f"{out}/root")], out)


def _step(d: Draft, op: Operator) -> None:
    function, out = str(op.attributes["function"]), op.outputs[0]
    if function in _GATES:
        _gate(d, op, _GATES[function])
    elif function == "rope":
        _rotation(d, op)
    elif function == "where":
        yes = d.zeros(f"{out}/mask", [1], TensorProto.BOOL)
        d.node("Where", [yes, *op.inputs, *[d.number("zero", 0.0)][: 2 - len(op.inputs)]], out)
    elif function == "pow":
        d.node("Pow", [*op.inputs, *[d.number("power", 1.5)][: 2 - len(op.inputs)]], out)
    elif function in {"div", "mul"} and len(op.inputs) == 1:  # one by a tensor, a square
        name, times = ("Reciprocal", 1) if function == "div" else ("Mul", 2)
        d.node(name, op.inputs * times, out)
    elif function in _BINARY and len(op.inputs) == 2:
        d.node(_BINARY[function], op.inputs, out)
    elif len(op.inputs) == 1:
        apply(d, function, op.inputs[0], out)
    else:
        raise NotInOnnx(f"{function} of {len(op.inputs)} tensors")


def apply(d: Draft, function: str, x: str, out: str) -> str:
    """A function of one tensor. Raises NotInOnnx for one that is not in the standard."""
    if function in _PLAIN:
        return d.node(_PLAIN[function], [x], out)
    if function == "gelu_tanh":
        return d.node("Gelu", [x], out, approximate="tanh")
    if function == "silu":
        return d.node("Mul", [x, d.node("Sigmoid", [x], f"{out}/sigmoid")], out)
    if function == "relu2":
        positive = d.node("Relu", [x], f"{out}/relu")
        return d.node("Mul", [positive, positive], out)
    if function in {"scale", "mask"}:
        return d.node("Mul" if function == "scale" else "Add", [x, d.number("factor", 0.5)], out)
    if function == "clip":
        return d.node("Clip", [x, d.number("zero", 0.0), d.number("six", 6.0)], out)
    raise NotInOnnx(function)


def _gate(d: Draft, op: Operator, function: str) -> None:
    """activation(gate) times up, the halves of one tensor or two tensors."""
    out = op.outputs[0]
    gate, up = op.inputs if len(op.inputs) == 2 else (f"{out}/gate", f"{out}/up")
    if len(op.inputs) == 1:
        d.node("Split", op.inputs, [gate, up], axis=-1, num_outputs=2)
    d.node("Mul", [apply(d, function, gate, f"{out}/{function}"), up], out)


def _rotation(d: Draft, op: Operator) -> None:
    """RotaryEmbedding; its tables of cosines and sines are of the standard's shape (positions, half a head)."""
    (x,), out = op.inputs, op.outputs[0]
    shape = d.shape(x)
    if len(shape) == 3:
        parts = op.attributes.get("shard_parts")
        size = parts[0][1] if isinstance(parts, tuple) else shape[-1]
        length, flat = shape[1], {"num_heads": shape[-1] // size}
    elif len(shape) == 4:
        size, length, flat = shape[-1], shape[2], {}
    else:
        raise NotInOnnx(f"rope of rank {len(shape)}")
    half = [length, size // 2]
    tables = [d.zeros(f"{word} of {length} x {size // 2}", half) for word in ("cosines", "sines")]
    d.node("RotaryEmbedding", [x, *tables, d.positions(length)], out, **flat)


def _attention(d: Draft, op: Operator) -> None:
    """Attention of the standard; written out where there is a dropout or a table of distances inside."""
    left_out = [key for key in ("window", "sinks", "chosen", "value_size") if op.attributes.get(key)]
    if left_out:
        raise NotInOnnx(f"attention with {' and '.join(left_out)}")
    heads, groups = integer(op, "heads", 1), integer(op, "kv_heads", 1)
    causal = int(bool(op.attributes.get("causal")))
    if op.attributes.get("dropout") or op.attributes.get("score_bias"):
        _written_out(d, op, heads, groups)
    else:
        d.node(
            "Attention",
            op.inputs[:3],
            op.outputs[0],
            q_num_heads=heads,
            kv_num_heads=groups,
            is_causal=causal,
        )


def _written_out(d: Draft, op: Operator, heads: int, groups: int) -> None:
    """softmax(q k' / sqrt(size) + mask + distances) v, with its dropout."""
    out, size = op.outputs[0], integer(op, "head_size", 1)
    q, k, v = (_apart(d, op, i, n, heads) for i, n in enumerate((heads, groups, groups)))
    k = d.node("Transpose", [k], f"{out}/keys", perm=[0, 1, 3, 2])
    scores = d.node("MatMul", [q, k], f"{out}/scores")
    scores = d.node("Mul", [scores, d.number(f"1 by root of {size}", 1 / sqrt(size))], f"{out}/scaled")
    rows, keys = d.shape(op.inputs[0])[1], d.shape(op.inputs[1])[1]
    if op.attributes.get("causal"):
        square = d.zeros(f"mask of {rows} x {keys}/all", [rows, keys], value=-inf)
        later = f"mask of {rows} x {keys}"
        d.once("Trilu", [square, d.whole_number("one", 1)], later, upper=1)
        scores = d.node("Add", [scores, later], f"{out}/masked")
    if len(op.inputs) > 3:
        places = d.zeros(f"distances of {rows} x {keys}", [rows, keys], TensorProto.INT64, 0)
        table = d.node("Gather", [op.inputs[3], places], f"{out}/distances", axis=0)
        table = d.node("Transpose", [table], f"{out}/distances of heads", perm=[2, 0, 1])
        scores = d.node("Add", [scores, table], f"{out}/placed")
    weights = d.node("Softmax", [scores], f"{out}/weights", axis=-1)
    if op.attributes.get("dropout"):
        weights = d.node("Dropout", [weights], f"{out}/dropout")
    mixed = d.node("MatMul", [weights, v], f"{out}/mixed")
    mixed = d.node("Transpose", [mixed], f"{out}/heads", perm=[0, 2, 1, 3])
    d.reshape(mixed, d.target(out), out)


def _apart(d: Draft, op: Operator, number: int, own: int, heads: int) -> str:
    """Heads of queries, keys or values as (batch, heads, rows, size), those of a group copied."""
    name, tensor = f"{op.outputs[0]}/{'qkv'[number]}", op.inputs[number]
    _, length, width = d.shape(tensor)
    size = width // own
    apart = d.reshape(tensor, [-1, length, own, size], f"{name}/apart")
    apart = d.node("Transpose", [apart], name, perm=[0, 2, 1, 3])
    if own == heads:
        return apart
    single = d.reshape(apart, [-1, own, 1, length, size], f"{name}/single")
    sizes = d.whole_numbers(f"{name}/sizes", [1, own, heads // own, length, size])
    return d.reshape(
        d.node("Expand", [single, sizes], f"{name}/copies"), [-1, heads, length, size], f"{name}/all"
    )


def _reduction(d: Draft, op: Operator) -> None:
    (x,), out = op.inputs, op.outputs[0]
    function = str(op.attributes["function"])
    axes, keep = _reduced_axes(d.shape(x), d.shape(out))
    if function == "argmax":
        d.node("ArgMax", [x], out, axis=axes[0], keepdims=keep)
    elif function in _REDUCED:
        d.node(_REDUCED[function], [x, d.whole_numbers(f"{out}/axes", axes)], out, keepdims=keep)
    else:
        raise NotInOnnx(f"{function} of experts")


def _reduced_axes(before: Shape, after: Shape) -> tuple[list[int], int]:
    """Axes that are gone or have become one, and whether they are kept. Raises NotInOnnx for another change."""
    if len(before) == len(after):
        axes = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        if all(after[i] == 1 for i in axes):
            return axes, 1
    kept, axes = list(after), []
    for i in reversed(range(len(before))):
        if kept and kept[-1] == before[i] and len(kept) <= i + 1:
            kept.pop()
        else:
            axes.insert(0, i)
    if kept:
        raise NotInOnnx(f"a reduction of {before} to {after}")
    return axes, 0


def _rows_of_table(d: Draft, op: Operator) -> None:
    ids, table = op.inputs
    d.node("Gather", [table, d.as_places(ids, f"{op.outputs[0]}/places")], op.outputs[0], axis=0)


def _kept(d: Draft, op: Operator) -> None:
    """Keys or values that later tokens will read: those that are computed, where there are no earlier ones."""
    if d.shape(op.inputs[0]) != d.shape(op.outputs[0]):
        raise NotInOnnx("cache of earlier tokens")
    d.node("Identity", op.inputs, op.outputs[0])


_WRITERS: Mapping[OpKind, Callable[[Draft, Operator], None]] = MappingProxyType(
    {
        OpKind.MATMUL: _product,
        OpKind.CONV: _convolution,
        OpKind.POOL: _pool,
        OpKind.SOFTMAX: _softmax,
        OpKind.NORM: _norm,
        OpKind.ELEMENTWISE: _step,
        OpKind.ATTENTION: _attention,
        OpKind.REDUCE: _reduction,
        OpKind.EMBEDDING: _rows_of_table,
        OpKind.CACHE: _kept,
        OpKind.VIEW: write_view,
    }
)
