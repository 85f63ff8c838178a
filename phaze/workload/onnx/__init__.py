"""ONNX files as forward models: `load_onnx` reads one, without its weights."""

from phaze.workload.onnx.onnx_model import OnnxModel, load_onnx

__all__ = ["OnnxModel", "load_onnx"]
