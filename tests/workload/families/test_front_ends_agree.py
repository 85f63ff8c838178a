"""The same small models through ONNX, torch.export and a family: operators by kind, FLOPs, parameter bytes."""

from collections import Counter

import pytest
from onnx import TensorProto
from onnx_tiny import integers, node, number, save, tensor, weight

from phaze.workload.families.convolutional_family import Convolutional
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.families.model_family import Extent
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.onnx import load_onnx
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.torch_export.torch_tracing import record
from phaze.workload.training.backward_pass import model_parameters
from phaze.workload.workload import Attention, Mode

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore")
BLOCKS, HIDDEN, HEADS, VOCABULARY, TOKENS, BATCH = 2, 16, 4, 50, 8, 3
SIZE = HIDDEN // HEADS


def figures(workload):
    """What must be the same, whichever way the model came."""
    graph = workload.operator_graph(BATCH)
    kinds = Counter(
        (op.kind, op.attributes.get("function")) for op in graph.operators if op.kind is not OpKind.VIEW
    )
    chain = workload.chain(BATCH, 1)
    stored = sum(t.size_bytes for t in model_parameters(graph))
    return kinds, chain.model_flops, stored, workload.parameter_count


class Block(nn.Module):
    """Pre-norm attention without a mask, and a feed-forward half."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.projection = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        q, k, v = (
            t.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = (q @ k.mT * SIZE**-0.5).softmax(-1) @ v
        x = x + self.projection(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(TOKENS, HIDDEN)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(BLOCKS))), nn.LayerNorm(HIDDEN)

    def forward(self, tokens):
        x = self.table(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.norm(self.blocks(x)) @ self.table.weight.T


class OnnxGpt:
    """The same nodes in ONNX, of opset 20."""

    def __init__(self):
        self.nodes = []
        self.constants = [integers("heads", 0, 0, HEADS, SIZE), integers("flat", 0, 0, HIDDEN)]
        self.constants.append(number("scale", SIZE**-0.5))

    def op(self, kind, *inputs, **attributes):
        self.nodes.append(node(kind, list(inputs), [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def weight(self, *dims):
        self.constants.append(weight(f"w{len(self.constants)}", *dims))
        return self.constants[-1].name

    def linear(self, x, width, made):
        return self.op("Add", self.op("MatMul", x, self.weight(width, made)), self.weight(made))

    def norm(self, x):
        return self.op("LayerNormalization", x, self.weight(HIDDEN), self.weight(HIDDEN))

    def block(self, x):
        joint = self.linear(self.norm(x), HIDDEN, 3 * HIDDEN)
        pieces = [f"{joint}{letter}" for letter in "qkv"]
        self.nodes.append(node("Split", [joint], pieces, axis=2, num_outputs=3))
        q, k, v = (self.op("Transpose", self.op("Reshape", p, "heads"), perm=[0, 2, 1, 3]) for p in pieces)
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        mixed = self.op("MatMul", self.op("Softmax", self.op("Mul", scores, "scale"), axis=-1), v)
        joined = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), "flat")
        x = self.op("Add", x, self.linear(joined, HIDDEN, HIDDEN))
        hidden = self.op("Gelu", self.linear(self.norm(x), HIDDEN, 4 * HIDDEN))
        return self.op("Add", x, self.linear(hidden, 4 * HIDDEN, HIDDEN))

    def save(self, folder):
        table = self.weight(VOCABULARY, HIDDEN)
        x = self.op("Add", self.op("Gather", table, "tokens"), self.weight(TOKENS, HIDDEN))
        for _ in range(BLOCKS):
            x = self.block(x)
        x = self.op("MatMul", self.norm(x), self.op("Transpose", table, perm=[1, 0]))
        tokens = tensor("tokens", 1, TOKENS, kind=TensorProto.INT64)
        return save(folder, self.nodes, [tokens], self.constants, outputs=[x], opset=20)


class OfFamily:
    """A family's model of the same dimensions."""

    name, heads = "family", None

    def __init__(self, dimensions):
        self.dimensions = dimensions

    def graph(self, batch):
        return self.dimensions.graph(self.name, Extent(batch, TOKENS), Attention.FLASH)


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.PREFILL])
def test_a_small_gpt_is_the_same_from_onnx_from_torch_and_as_a_family(tmp_path, mode):
    dimensions = Decoder(
        layers=BLOCKS, hidden=HIDDEN, heads=HEADS, vocabulary=VOCABULARY, max_positions=TOKENS
    )
    models = [
        OfFamily(dimensions),
        load_onnx(OnnxGpt().save(tmp_path)),
        record(Gpt(), (torch.zeros(1, TOKENS, dtype=torch.long),), {}, "gpt"),
    ]
    family, onnx, exported = (figures(GraphWorkload(model, mode)) for model in models)
    assert onnx == family
    assert exported == family


def test_a_small_convolutional_network_is_the_same_from_onnx_from_torch_and_as_a_family(tmp_path):
    module = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.Hardswish()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)),
    )
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], strides=[2, 2], pads=[1] * 4),
        node("BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], ["n1"]),
        node("Relu", ["n1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2", "b2"], ["c2"], group=8, pads=[1] * 4),
        node("HardSwish", ["c2"], ["h2"]),
        node("GlobalAveragePool", ["h2"], ["p2"]),
        node("Flatten", ["p2"], ["f2"]),
        node("Gemm", ["f2", "w3", "b3"], ["y"], transB=1),
    ]
    constants = [weight("w1", 8, 3, 3, 3), weight("w2", 8, 1, 3, 3), weight("b2", 8), weight("w3", 10, 8)]
    constants += [weight(name, 8) for name in ("scale", "shift", "mean", "variance")] + [weight("b3", 10)]
    path = save(tmp_path, nodes, [tensor("x", 1, 3, 32, 32)], constants)
    exported = record(module, (torch.zeros(1, 3, 32, 32),), {}, "cnn")
    blocks = [
        {"block": "conv", "channels": 8, "kernel": 3, "stride": 2},
        {"block": "max_pool", "kernel": 2},
        {"block": "conv", "channels": 8, "kernel": 3, "groups": 8, "norm": False, "activation": "hard_swish"},
        {"block": "global_pool"},
        {"block": "linear", "features": 10},
    ]
    models = [OfFamily(Convolutional(image=32, blocks=blocks)), load_onnx(path), exported]
    family, onnx, traced = (figures(GraphWorkload(model, Mode.TRAINING)) for model in models)
    assert onnx == family
    assert traced == family
