"""ONNX files of workloads: the forward pass in operators of the standard, weights without content."""
