"""Small ONNX models that hostile ones are made from: layers of all kinds, shape arithmetic, branches and functions."""

from __future__ import annotations

import copy
import json
from functools import lru_cache

from google.protobuf import json_format
from hostile import mutated
from onnx import ModelProto, TensorProto, helper

SIZES = (0, 1, 3, 40, 100, 100_000, 2_000_000, 2**31, 2**40, 2**62)
_INTEGERS = ("dims", "ints", "i", "int64Data", "dimValue", "version", "irVersion", "offset", "length")

node = helper.make_node


def _value(name, *dims, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def _weight(name, *dims):
    """A weight without its numbers, which nothing reads."""
    return TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)


def _integers(name, *values):
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def _model(nodes, inputs, constants, *, functions=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))


def _dense():
    nodes = [
        node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        node("Relu", ["h"], ["a"]),
        node("MatMul", ["a", "v"], ["m"]),
        node("Softmax", ["m"], ["y"], axis=-1),
    ]
    return _model(
        nodes, [_value("x", "N", 16)], [_weight("w", 32, 16), _weight("b", 32), _weight("v", 32, 8)]
    )


def _image():
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], group=1),
        node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"]),
        node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2], dilations=[1, 1]),
        node("Resize", ["p", "", "scales"], ["r"], mode="nearest"),
        node("GlobalAveragePool", ["r"], ["g"]),
        node("Flatten", ["g"], ["y"], axis=1),
    ]
    constants = [_weight("w", 8, 3, 3, 3), _weight("b", 8), _weight("s", 8)]
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [4], [1.0, 1.0, 2.0, 2.0])
    return _model(nodes, [_value("x", "N", 3, 16, 16)], [*constants, scales])


def _shapes():
    """Heads split and joined by shape arithmetic, a mask made by Range, Expand, Tile and Where."""
    nodes = [
        node("Add", ["x", "bias"], ["z"]),
        node("Shape", ["z"], ["s"]),
        node("Gather", ["s", "one"], ["t"], axis=0),
        node("Concat", ["minus", "t", "heads"], ["target"], axis=0),
        node("Reshape", ["z", "target"], ["split"]),
        node("Transpose", ["split"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["split"], ["k"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q", "k"], ["scores"]),
        node("Range", ["zero", "many", "step"], ["r"]),
        node("ConstantOfShape", ["wide"], ["filled"]),
        node("Expand", ["r", "wide"], ["e"]),
        node("Tile", ["e", "times"], ["tiled"]),
        node("Cast", ["tiled"], ["mask"], to=1),
        node("ReduceSum", ["mask"], ["total"], keepdims=0),
        node("Add", ["scores", "total"], ["added"]),
        node("Slice", ["added", "zeros", "ends", "axes"], ["part"]),
        node("Pad", ["part", "pads"], ["padded"]),
        node("Einsum", ["padded", "padded"], ["y"], equation="bhij,bhjk->bhik"),
    ]
    constants = [
        *(_integers("one", 1), _integers("minus", -1), _integers("heads", 4, 8), _integers("wide", 8, 8)),
        *(_integers("times", 1, 1), _integers("zeros", 0), _integers("ends", 8), _integers("axes", 3)),
        *(_integers("pads", *[0] * 8), _weight("bias", 32)),
        *(
            helper.make_tensor(n, TensorProto.INT64, [], [v])
            for n, v in (("zero", 0), ("many", 8), ("step", 1))
        ),
    ]
    return _model(nodes, [_value("x", "N", 8, 32)], constants)


def _recurrent(kind, gates, states):
    rows, steps = gates * 8, "time"
    nodes = [
        node(kind, ["x", "w", "r", "b"], ["s", *["h", "c"][:states]], hidden_size=8),
        node("Relu", ["s"], ["y"]),
    ]
    constants = [_weight("w", 1, rows, 6), _weight("r", 1, rows, 8), _weight("b", 1, 2 * rows)]
    named = _model(nodes, [_value("x", steps, "N", 6)], constants)
    fixed = _model(nodes, [_value("x", 5, 1, 6)], constants)
    return named, fixed


def _branch():
    then = helper.make_graph(
        [node("Relu", ["x"], ["t"])], "t", [], [helper.make_empty_tensor_value_info("t")]
    )
    other = helper.make_graph(
        [node("Tanh", ["x"], ["e"])], "e", [], [helper.make_empty_tensor_value_info("e")]
    )
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"], axis=0),
        node("Equal", ["n", "width"], ["c"]),
        node("If", ["c"], ["z"], then_branch=then, else_branch=other),
        node("MatMul", ["z", "w"], ["y"]),
    ]
    return _model(
        nodes, [_value("x", "N", 16)], [_weight("w", 16, 4), _integers("one", 1), _integers("width", 16)]
    )


def _looped():
    body = helper.make_graph(
        [node("Relu", ["v"], ["v2"]), node("Identity", ["go"], ["go2"])],
        "b",
        [_value("i", kind=TensorProto.INT64), _value("go", kind=TensorProto.BOOL), _value("v", 1, 16)],
        [_value("go2", kind=TensorProto.BOOL), _value("v2", 1, 16)],
    )
    nodes = [node("Loop", ["trips", "", "x"], ["y"], body=body)]
    trips = helper.make_tensor("trips", TensorProto.INT64, [], [3])
    return _model(nodes, [_value("x", 1, 16)], [trips])


def _called():
    """Functions that call others, and operators that the standard defines by others."""
    inner = helper.make_function(
        "own", "inner", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    twice = [node("inner", ["a"], ["m"], domain="own"), node("inner", ["m"], ["b"], domain="own")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    outer = helper.make_function("own", "outer", ["a"], ["b"], twice, opsets)
    nodes = [
        node("outer", ["x"], ["o"], domain="own"),
        node("LayerNormalization", ["o", "w", "w"], ["n"], axis=-1),
        node("SoftmaxCrossEntropyLoss", ["n", "labels"], ["loss"]),
        node("MatMul", ["n", "m"], ["y"]),
    ]
    inputs = [_value("x", "N", 16), _value("labels", "N", kind=TensorProto.INT64)]
    return _model(nodes, inputs, [_weight("w", 16), _weight("m", 16, 4)], functions=(inner, outer))


def _looked_up():
    nodes = [
        node("Gather", ["table", "x"], ["e"]),
        node("Split", ["e", "parts"], ["a", "b"], axis=-1),
        node("Mul", ["a", "b"], ["m"]),
        node("Unsqueeze", ["m", "axis"], ["u"]),
        node("Squeeze", ["u", "axis"], ["y"]),
    ]
    constants = [_weight("table", 100, 16), _integers("parts", 8, 8), _integers("axis", 1)]
    return _model(nodes, [_value("x", "N", 8, kind=TensorProto.INT64)], constants)


@lru_cache(maxsize=1)
def models():
    """All models as trees of plain values."""
    cells = (("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1))
    layers = [model for cell in cells for model in _recurrent(*cell)]
    made = (_dense(), _image(), _shapes(), *layers, _branch(), _looped(), _called(), _looked_up())
    return tuple(_tree(json_format.MessageToDict(model)) for model in made)


def _tree(value, key=""):
    """Whole numbers, which protobuf writes as texts, as numbers."""
    if isinstance(value, dict):
        return {k: _tree(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_tree(item, key) for item in value]
    return int(value) if key in _INTEGERS and isinstance(value, str) else value


def written(random, tree):
    """The bytes of a model with a few things changed; what no model can hold is not among them."""
    for _ in range(30):
        resized = random.choice((0, 0, 1, 1, 2))
        changed = copy.deepcopy(tree) if resized else mutated(random, tree)
        for _ in range(resized):
            _resize(random, changed)
        try:
            return json_format.ParseDict(json.loads(json.dumps(changed)), ModelProto()).SerializeToString()
        except (
            json_format.ParseError,
            ArithmeticError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            continue
    return json_format.ParseDict(tree, ModelProto()).SerializeToString()


def _resize(random, tree):
    """Replace one size of one tensor, attribute or input."""
    places = list(_sizes(tree))
    if places:
        parent, key = random.choice(places)
        parent[key] = random.choice(SIZES)


def _sizes(value, key=""):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for inner, item in items:
        named = inner if isinstance(inner, str) else key
        if isinstance(item, int) and named in _INTEGERS[:5]:
            yield value, inner
        yield from _sizes(item, named)
