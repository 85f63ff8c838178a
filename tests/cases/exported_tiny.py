"""Programs for the tests, described by hand line by line as `torch.export` would record them."""

from __future__ import annotations

from phaze.workload.torch_export.exported_model import join_recordings
from phaze.workload.torch_export.exported_program import Node, Program, Ref, TensorInfo

BATCHES = (2, 14)
B = "batch"  # stands for the batch in a shape: B alone, or (B, factor) for a multiple of it


class Recorder:
    """Grows a program; shapes are written with B and recorded at both batches."""

    def __init__(self):
        self.nodes, self.shapes, self.inputs = [], {}, []
        self.parameters, self.buffers = {}, {}

    def input(self, name, *shape, dtype="float32"):
        self.shapes[name] = (shape, dtype)
        self.inputs.append(name)
        return Ref(name)

    def weight(self, called, *shape):
        name = "p_" + called.replace(".", "_")
        self.shapes[name] = (shape, "float32")
        self.parameters[name] = called
        return Ref(name)

    def buffer(self, called, *shape, dtype="float32"):
        name = "b_" + called.replace(".", "_")
        self.shapes[name] = (shape, dtype)
        self.buffers[name] = called
        return Ref(name)

    def call(self, target, /, *shapes, module="", dtype="float32", **arguments):
        """Record a call; one shape per result. Returns the Ref of the first, or all of several."""
        position = len(self.nodes)
        names = [f"t{position}" if len(shapes) == 1 else f"t{position}_{i}" for i in range(len(shapes))]
        self.shapes |= {name: (shape, dtype) for name, shape in zip(names, shapes, strict=True)}
        full = target if "." in target else f"aten.{target}.default"
        self.nodes.append(Node(f"n{position}", full, arguments, tuple(names), module))
        refs = tuple(Ref(name) for name in names)
        return refs[0] if len(refs) == 1 else refs

    def program(self, batch, *outputs):
        def at(shape):
            return tuple(
                batch * size[1] if isinstance(size, tuple) else batch if size == B else size for size in shape
            )

        return Program(
            source="tiny",
            batch=batch,
            nodes=tuple(self.nodes),
            tensors={name: TensorInfo(at(shape), dtype) for name, (shape, dtype) in self.shapes.items()},
            inputs=tuple(self.inputs),
            parameters=self.parameters,
            buffers=self.buffers,
            outputs=tuple(ref.tensor for ref in outputs),
        )

    def model(self, *outputs):
        return join_recordings("tiny", *(self.program(batch, *outputs) for batch in BATCHES))

    def graph(self, *outputs, batch=4):
        return self.model(*outputs).graph(batch)


def summary(graph):
    """(kind, function or None, inputs, output shape) of every operator."""
    return [
        (op.kind, op.attributes.get("function"), op.inputs, graph.tensors[op.outputs[0]].shape)
        for op in graph.operators
    ]
