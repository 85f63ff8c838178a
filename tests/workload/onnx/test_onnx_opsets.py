"""The same operator as old and new files write it: attributes until some opset, inputs since then."""

import pytest
from onnx_tiny import integers, node, number, save, tensor

from phaze.workload.onnx import load_onnx
from phaze.workload.operators.operator_graph import OpKind

CHOICES = [
    ("Clip", {"min": 0.0, "max": 6.0}, 10, [number("a", 0.0), number("b", 6.0)], (2, 4, 1, 6)),
    ("Slice", {"starts": [1], "ends": [3], "axes": [3]}, 9, None, (2, 4, 1, 2)),
    ("Squeeze", {"axes": [2]}, 12, [integers("a", 2)], (2, 4, 6)),
    ("Unsqueeze", {"axes": [2]}, 12, [integers("a", 2)], (2, 4, 1, 1, 6)),
    ("ReduceSum", {"axes": [3]}, 12, [integers("a", 3)], (2, 4, 1, 1)),
    ("ReduceMean", {"axes": [1]}, 17, [integers("a", 1)], (2, 1, 1, 6)),
    ("Pad", {"pads": [0, 0, 0, 1, 0, 0, 0, 2]}, 10, [integers("a", 0, 0, 0, 1, 0, 0, 0, 2)], (2, 4, 1, 9)),
    ("Dropout", {"ratio": 0.1}, 11, [number("a", 0.1)], (2, 4, 1, 6)),
    ("Split", {"split": [4, 2], "axis": 3}, 12, [integers("a", 4, 2)], (2, 4, 1, 4)),
    ("Upsample", {"scales": [1.0, 1.0, 2.0, 2.0]}, 8, None, (2, 4, 2, 12)),
]


def summary(folder, made, constants, opset):
    path = save(folder, [made], [tensor("x", 1, 4, 1, 6)], constants, opset=opset)
    graph = load_onnx(path).graph(2)
    kinds = [(op.kind, op.attributes.get("function")) for op in graph.operators if op.kind is not OpKind.VIEW]
    return graph.tensors["y"].shape, kinds


@pytest.mark.parametrize(("kind", "attributes", "last", "inputs", "shape"), CHOICES)
def test_attributes_and_inputs_mean_the_same(tmp_path, kind, attributes, last, inputs, shape):
    results = ["y", "rest"] if kind == "Split" else ["y"]
    found = [
        summary(tmp_path, node(kind, ["x"], results, **attributes), [], opset) for opset in range(7, last + 1)
    ]
    if inputs is not None:
        left = {"axis": 3} if kind == "Split" else {}
        made = node(kind, ["x", *(constant.name for constant in inputs)], results, **left)
        found += [summary(tmp_path, made, inputs, opset) for opset in (last + 1, 23)]
    assert [size for size, _ in found] == [shape] * len(found)
    assert len({tuple(kinds) for _, kinds in found}) == 1


@pytest.mark.parametrize("opset", range(7, 27))
def test_every_opset(tmp_path, opset):
    nodes = [node("Relu", ["x"], ["r"]), node("Softmax", ["r"], ["y"], axis=-1)]
    path = save(tmp_path, nodes, [tensor("x", 1, 5)], opset=opset)
    assert [op.kind for op in load_onnx(path).graph(2).operators] == [OpKind.ELEMENTWISE, OpKind.SOFTMAX]
