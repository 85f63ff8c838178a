"""Networks as exporters write them: symbolic batch and sequence, shape arithmetic, decomposed norms."""

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from onnx_tiny import integers, node, number, save, tensor, weight

from phaze.errors import InputError
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.onnx import load_onnx
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

HIDDEN, HEADS, VOCABULARY, POSITIONS, SEQUENCE = 32, 4, 100, 64, 16
SIZE = HIDDEN // HEADS
BLOCK = 2 * 2 * HIDDEN + 12 * HIDDEN**2 + (3 + 1 + 4 + 1) * HIDDEN  # norms, weights, biases
PARAMETERS = (VOCABULARY + POSITIONS) * HIDDEN + 2 * BLOCK + 2 * HIDDEN
MACS = (
    2 * (12 * HIDDEN**2 * SEQUENCE + 2 * SEQUENCE**2 * HIDDEN)  # products, attention
    + SEQUENCE * HIDDEN * VOCABULARY
)


class Export:
    """Nodes and constants of a GPT-2 as torch exports it, grown line by line."""

    def __init__(self):
        self.nodes, self.constants = [], [integers(f"i{n}", n) for n in (0, 1, -1, SIZE, HEADS)]

    def op(self, kind, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, *dims):
        self.constants.append(weight(f"w{len(self.constants)}", *dims))
        return self.constants[-1].name

    def number(self, value):
        self.constants.append(number(f"c{len(self.constants)}", value))
        return self.constants[-1].name

    def size(self, x, axis):
        return self.op("Gather", self.op("Shape", x), f"i{axis}", axis=0)

    def norm(self, x):
        """Layer norm as opset 16 and below have it."""
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        squares = self.op("Pow", centred, self.number(2.0))
        spread = self.op("Add", self.op("ReduceMean", squares, axes=[-1]), self.number(1e-5))
        scaled = self.op("Mul", self.op("Div", centred, self.op("Sqrt", spread)), self.weight(HIDDEN))
        return self.op("Add", scaled, self.weight(HIDDEN))

    def linear(self, x, wide, narrow):
        """addmm over (batch x sequence, hidden), reshaped there and back by shape arithmetic."""
        rows = self.op("Reshape", x, self.op("Concat", "i-1", self.size(x, -1), axis=0))
        made = self.op("Gemm", rows, self.weight(narrow, wide), self.weight(wide))
        lead = self.op("Slice", self.op("Shape", x), "i0", "i-1")
        self.constants.append(integers(f"wide{len(self.constants)}", wide))
        return self.op("Reshape", made, self.op("Concat", lead, self.constants[-1].name, axis=0))

    def attention(self, x, mask):
        self.nodes.append(
            node("Split", [self.linear(x, 3 * HIDDEN, HIDDEN)], [f"{x}{p}" for p in "qkv"], axis=2)
        )
        q, k, v = (self.heads(f"{x}{p}") for p in "qkv")
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = self.op("Add", self.op("Div", scores, self.number(SIZE**0.5)), mask)
        mixed = self.op("MatMul", self.op("Softmax", scaled, axis=-1), v)
        joined = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        lead = self.op("Slice", self.op("Shape", joined), "i0", "minus2")
        flat = self.op("Reshape", joined, self.op("Concat", lead, "i-1", axis=0))
        return self.linear(flat, HIDDEN, HIDDEN)

    def heads(self, x):
        lead = self.op("Slice", self.op("Shape", x), "i0", "i-1")
        split = self.op("Reshape", x, self.op("Concat", lead, f"i{HEADS}", f"i{SIZE}", axis=0))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.number(2**0.5)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.number(1.0))), self.number(0.5))

    def gpt2(self):
        """Two layers, logits by the transposed token table; the causal mask is folded to numbers."""
        table, places = self.weight(VOCABULARY, HIDDEN), self.weight(POSITIONS, HIDDEN)
        lowest = np.triu(np.full((1, 1, SEQUENCE, SEQUENCE), np.finfo(np.float32).min, np.float32), 1)
        self.constants += [
            numpy_helper.from_array(lowest, "mask"),
            integers("minus2", -2),
            number("begin", 0),
        ]
        length = self.op("Squeeze", self.size("ids", 1), "i0")
        order = self.op("Range", "zero", length, "one")
        self.constants += [numpy_helper.from_array(np.int64(n), t) for n, t in ((0, "zero"), (1, "one"))]
        order = self.op("Unsqueeze", order, "i0")
        x = self.op("Add", self.op("Gather", table, "ids"), self.op("Gather", places, order))
        for _ in range(2):
            x = self.op("Add", x, self.attention(self.norm(x), "mask"))
            x = self.op(
                "Add",
                x,
                self.linear(self.gelu(self.linear(self.norm(x), 4 * HIDDEN, HIDDEN)), HIDDEN, 4 * HIDDEN),
            )
        return self.op("MatMul", self.norm(x), self.op("Transpose", table, perm=[1, 0]))


@pytest.fixture
def gpt2(tmp_path):
    export = Export()
    logits = export.gpt2()
    ids = tensor("ids", "batch", "sequence", kind=TensorProto.INT64)
    return save(tmp_path, export.nodes, [ids], export.constants, outputs=(logits,), opset=16)


def test_gpt2_with_symbolic_batch_and_sequence(gpt2):
    model = load_onnx(gpt2, {"sequence": SEQUENCE})
    workload = GraphWorkload(model, Mode.TRAINING)
    assert workload.parameter_count == PARAMETERS
    for batch in (1, 3):
        assert workload.chain(batch, 1).model_flops == 3 * 2 * batch * MACS
        assert GraphWorkload(model, Mode.PREFILL).chain(batch, 1).model_flops == 2 * batch * MACS
    assert model.graph(3).tensors[model.source.outputs[0]].shape == (3, SEQUENCE, VOCABULARY)


def test_the_workload_binds_dimensions(gpt2):
    assert load_workload(str(gpt2), bind={"sequence": SEQUENCE}).parameter_count == PARAMETERS
    with pytest.raises(InputError, match="symbolic dimensions need a size: give --bind sequence="):
        load_workload(str(gpt2))
    assert load_workload(str(gpt2), bind={"sequence": SEQUENCE}).global_batch(2) == 64
    assert load_workload(str(gpt2), bind={"sequence": SEQUENCE, "batch": 8}).global_batch(2) == 8
    both = load_workload(str(gpt2), bind={"sequence": SEQUENCE, "batch": 8}, global_batch=16)
    assert both.global_batch(2) == 16
    with pytest.raises(InputError, match="one of its dimensions; bind that instead"):
        load_workload(str(gpt2), sequence_length=8)
    with pytest.raises(InputError, match=r"only ONNX and \.pt2 files have dimensions to bind"):
        load_workload("gpt3", bind={"sequence": 8})


def test_a_class_token_written_for_one_batch_is_repeated_for_any(tmp_path):
    nodes = [node("Concat", ["token", "x"], ["j"], axis=1), node("MatMul", ["j", "w"], ["y"])]
    for batch in (1, 2):
        constants = [weight("token", batch, 1, 8), weight("w", 8, 8)]
        graph = load_onnx(save(tmp_path, nodes, [tensor("x", batch, 4, 8)], constants)).graph(5)
        assert graph.tensors["y"].shape == (5, 5, 8)


def test_masks_tables_of_sines_and_single_numbers_are_not_trained(tmp_path):
    nodes = [
        node("Cos", ["angles"], ["c"]),
        node("Mul", ["x", "c"], ["turned"]),
        node("Mul", ["turned", "half"], ["scaled"]),
        node("Trilu", ["square"], ["causal"]),
        node("Add", ["scaled", "causal"], ["masked"]),
        node("MatMul", ["masked", "w"], ["y"]),
    ]
    constants = [weight(name, 4, 4) for name in ("angles", "square", "w")] + [weight("half", 1)]
    graph = load_onnx(save(tmp_path, nodes, [tensor("x", 1, 4, 4)], constants)).graph(2)
    assert [t.name for t in graph.parameters()] == ["w"]


def losses(folder, nodes, *, opset=17, shape=(1, 8)):
    """Kinds of the operators of a trained model that ends in these nodes, and the loss's labels."""
    nodes = [node("MatMul", ["x", "w"], ["m"]), *nodes]
    path = save(folder, nodes, [tensor("x", *shape)], [weight("w", 8, 8)], opset=opset)
    graph = GraphWorkload(load_onnx(path), Mode.TRAINING).operator_graph(3)
    return [op.kind for op in graph.operators if op.kind is not OpKind.VIEW], graph.tensors["labels"].shape


def test_a_loss_contains_the_softmax_at_the_end(tmp_path):
    kinds = [OpKind.MATMUL, OpKind.LOSS]
    assert losses(tmp_path, [node("Softmax", ["m"], ["y"])]) == (kinds, (3,))
    assert losses(tmp_path, [node("Softmax", ["m"], ["s"]), node("Identity", ["s"], ["y"])])[0] == kinds
    old = [node("Softmax", ["m"], ["y"], axis=1)]
    assert losses(tmp_path, old, opset=9, shape=(1, 4, 2, 8)) == (kinds, (3,))
    read_again = [node("Softmax", ["m"], ["s"]), node("Mul", ["s", "m"], ["y"])]
    assert OpKind.SOFTMAX in losses(tmp_path, read_again)[0]


def test_classes_of_a_map_are_its_channels(tmp_path):
    assert losses(tmp_path, [node("Relu", ["m"], ["y"])], shape=(1, 5, 7, 8))[1] == (3, 7, 8)


def test_a_model_without_work_or_without_parameters_is_a_bad_input(tmp_path):
    for kind in ("Dropout", "Identity"):
        model = load_onnx(save(tmp_path, [node(kind, ["x"], ["y"])], [tensor("x", 1, 4)]))
        with pytest.raises(InputError, match="computes nothing in prefill"):
            GraphWorkload(model, Mode.PREFILL).chain(1, 1)
    model = load_onnx(save(tmp_path, [node("Relu", ["x"], ["y"])], [tensor("x", 1, 4)]))
    assert len(GraphWorkload(model, Mode.PREFILL).chain(1, 1).layers) == 1
    with pytest.raises(InputError, match="nothing to train"):
        GraphWorkload(model, Mode.TRAINING).chain(1, 1)
