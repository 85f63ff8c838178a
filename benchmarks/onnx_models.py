"""ONNX files to measure the import with: ResNet-50, and a chain of residual blocks of any length."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import NodeProto, TensorProto, helper

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width of the middle convolution and number of blocks (He et al., arXiv 1512.03385, table 1)."""


class Network:
    """An ONNX graph that grows node by node; weights are declared, their content is left out."""

    def __init__(self, shape: tuple[int | str, ...]) -> None:
        """Begin with the input `x`."""
        self._input = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        self._nodes: list[NodeProto] = []
        self._weights: list[TensorProto] = []

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Append a node with one result."""
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def weight(self, *dims: int) -> str:
        """Declare a weight."""
        tensor = TensorProto(name=f"w{len(self._weights)}", data_type=TensorProto.FLOAT, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")
        self._weights.append(tensor)
        return str(tensor.name)

    def save(self, output: str, path: Path) -> str:
        """Write the file; returns its path."""
        result = helper.make_empty_tensor_value_info(output)
        graph = helper.make_graph(self._nodes, "network", [self._input], [result], self._weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
        return str(path)


def resnet50(folder: Path) -> str:
    """ResNet-50 for images of 224 x 224, as its paper has it."""
    net = Network(("batch", 3, 224, 224))
    x = net.add("Relu", _convolution(net, "x", (3, 64), 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 64
    for stage, (middle, blocks) in enumerate(STAGES):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            x = _bottleneck(net, x, (width, middle), stride)
            width = 4 * middle
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    logits = net.add("Gemm", x, net.weight(1000, width), net.weight(1000), transB=1)
    return net.save(logits, folder / "resnet50.onnx")


def _bottleneck(net: Network, x: str, widths: tuple[int, int], stride: int) -> str:
    """Three convolutions beside a connection, which is projected where the shape changes."""
    outer, middle = widths
    y = net.add("Relu", _convolution(net, x, (outer, middle), 1, 1))
    y = net.add("Relu", _convolution(net, y, (middle, middle), 3, stride))
    y = _convolution(net, y, (middle, 4 * middle), 1, 1)
    if outer != 4 * middle or stride > 1:
        x = _convolution(net, x, (outer, 4 * middle), 1, stride)
    return net.add("Relu", net.add("Add", y, x))


def _convolution(net: Network, x: str, channels: tuple[int, int], size: int, stride: int) -> str:
    """A convolution and its batch norm."""
    before, after = channels
    window = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
    x = net.add("Conv", x, net.weight(after, before, size, size), **window)
    return net.add("BatchNormalization", x, *(net.weight(after) for _ in range(4)))


def blocks(folder: Path, nodes: int) -> str:
    """Residual blocks of five nodes each: a product, a function, two transposes, a sum."""
    net = Network((1, 64, 64))
    x = "x"
    for _ in range(nodes // 5):
        y = net.add("Relu", net.add("MatMul", x, net.weight(64, 64)))
        for _ in range(2):
            y = net.add("Transpose", y, perm=[0, 2, 1])
        x = net.add("Add", y, x)
    return net.save(x, folder / f"blocks{nodes}.onnx")
