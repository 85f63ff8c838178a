"""Tiny ONNX models for the tests, built in memory and written to a folder."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def light(name):
    """Path of a real model that the onnx wheel ships."""
    return LIGHT / f"light_{name}.onnx"


def tensor(name, *dims, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def weight(name, *dims):
    return numpy_helper.from_array(np.zeros(dims, np.float32), name)


def integers(name, *values):
    return numpy_helper.from_array(np.asarray(values, np.int64), name)


def number(name, value):
    return numpy_helper.from_array(np.asarray(value, np.float32), name)


def model(nodes, inputs, constants=(), outputs=("y",), *, opset=17, **fields):
    declared = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "tiny", inputs, declared, list(constants))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **fields)


def save(folder, nodes, inputs, constants=(), **fields):
    """Write a model of these nodes and return its path."""
    path = folder / "tiny.onnx"
    onnx.save(model(nodes, inputs, constants, **fields), path)
    return path


node = helper.make_node
