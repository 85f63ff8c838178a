"""An image network in ONNX on a chip of a few watts: which design answers fastest within 8 W?

The network, a small one of depthwise separable convolutions as in MobileNet, is made here and saved as ONNX: put the
path of your own in its place. The space varies the array, the vector core and the buffer of the built-in chip `edge`.
"""

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import phaze

SPACE = """\
schema_version: 1
name: around-edge
base: edge
axes:
  - {fields: [tensor_core_rows, tensor_core_columns], values: [[16, 16], [32, 32], [64, 64], [128, 128]]}
  - {fields: [tensor_cores], values: [1, 2, 4]}
  - {fields: [vector_core_alus], values: [32, 64, 128, 256]}
  - {fields: [global_buffer_bytes], values: [1MiB, 2MiB, 4MiB, 8MiB]}
"""
CHANNELS = (32, 64, 128, 128, 256, 256, 512)


def network() -> onnx.ModelProto:
    """Images of 3 x 224 x 224 to 1000 classes, about a million parameters."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def convolution(source: str, name: str, shape: tuple[int, ...], stride: int, group: int) -> str:
        weights.append(numpy_helper.from_array(np.zeros(shape, np.float32), f"{name}.weight"))
        pads = [shape[2] // 2] * 4
        inputs = [source, f"{name}.weight"]
        nodes.append(
            helper.make_node("Conv", inputs, [name], name, strides=[stride] * 2, pads=pads, group=group)
        )
        nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"], f"{name}.relu"))
        return f"{name}.relu"

    x = convolution("image", "stem", (CHANNELS[0], 3, 3, 3), 2, 1)
    for i, (narrow, wide) in enumerate(pairwise(CHANNELS)):
        x = convolution(x, f"depthwise{i}", (narrow, 1, 3, 3), 1 + (narrow < wide), narrow)
        x = convolution(x, f"pointwise{i}", (wide, narrow, 1, 1), 1, 1)
    weights.append(numpy_helper.from_array(np.zeros((CHANNELS[-1], 1000), np.float32), "classes.weight"))
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"], "pool"))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["features"], "flatten"))
    nodes.append(helper.make_node("MatMul", ["features", "classes.weight"], ["classes"], "classes"))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 224, 224])
    classes = helper.make_tensor_value_info("classes", TensorProto.FLOAT, ["batch", 1000])
    graph = helper.make_graph(nodes, "vision", [image], [classes], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    """Make the files, search, and compare with the chip that is there."""
    with tempfile.TemporaryDirectory() as folder:
        model, space = Path(folder, "vision.onnx"), Path(folder, "around-edge.yaml")
        onnx.save(network(), model)
        space.write_text(SPACE, encoding="utf-8")
        asked = {"mode": "prefill", "devices": 1, "global_batch": 1}
        found = phaze.explore(model, power="8W", space=space, **asked)
        edge = phaze.evaluate("edge", model, **asked)
    print(found)
    best, result = found.best, found.best.workloads["vision"]
    print(
        f"\nWithin 8 W, {best.id} answers in {1e3 * result.iteration_time_s:.2f} ms at {best.tdp_w:.2f} W; `edge` "
        f"takes {1e3 * edge.result.iteration_time_s:.2f} ms at {edge.design.tdp_w:.2f} W. "
        f"Of {found.certificate.space_size:,} points none is faster by more than {100 * found.certificate.gap:.1f} %."
    )


if __name__ == "__main__":
    main()
