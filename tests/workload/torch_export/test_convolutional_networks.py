"""Convolutions, norms and activations of PyTorch are the network that a workload file describes."""

from __future__ import annotations

from itertools import chain as joined

import pytest

torch = pytest.importorskip("torch")

from phaze import from_torch  # noqa: E402
from phaze.report.exports.onnx.onnx_file import to_onnx  # noqa: E402
from phaze.workload.workload_loader import LoadOptions, load_workload, workload_of  # noqa: E402

nn = torch.nn

EFFICIENT = {
    "schema_version": 1,
    "name": "efficient",
    "family": "convolutional",
    "source": {"dimensions": "Tan and Le, EfficientNet, arXiv 1905.11946, table 1, of which two blocks"},
    "dimensions": {
        "image": 32,
        "activation": "silu",
        "blocks": [
            {"block": "conv", "channels": 8, "kernel": 3, "stride": 2},
            *(
                {"block": "inverted", "channels": 16, "expanded": wide, "kernel": 5, "stride": stride}
                | {"squeeze": 2, "squeeze_activation": "silu", "gate": "sigmoid"}
                for wide, stride in ((48, 2), (96, 1))
            ),
            {"block": "conv", "channels": 64},
            {"block": "global_pool"},
            {"block": "dropout", "probability": 0.2},
            {"block": "linear", "features": 10},
        ],
    },
}


def layer(inside, out, kernel=1, stride=1, groups=1, activation=nn.SiLU):
    """Convolution, batch norm and activation."""
    conv = nn.Conv2d(inside, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), *([activation()] if activation else []))


class Inverted(nn.Module):
    """Widen, convolve each channel, weigh channels, narrow."""

    def __init__(self, inside, wide, out, stride):
        super().__init__()
        self.widen = layer(inside, wide)
        self.each = layer(wide, wide, 5, stride, groups=wide)
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 2, 1), nn.SiLU(), nn.Conv2d(2, wide, 1), nn.Sigmoid()
        )
        self.narrow = layer(wide, out, activation=None)
        self.kept = stride == 1 and inside == out

    def forward(self, x):
        y = self.each(self.widen(x))
        y = self.narrow(self.weigh(y) * y)
        return x + y if self.kept else y


def efficient():
    blocks = Inverted(8, 48, 16, 2), Inverted(16, 96, 16, 1)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 10)
    return nn.Sequential(layer(3, 8, 3, 2), *blocks, layer(16, 64), *head)


def figures(workload):
    """Works of both passes of every layer without their names, and its memory."""
    chain = workload.chain(4, 1)
    found = []
    for each in (chain.layers[i] for i in chain.index):
        works = joined.from_iterable(half.works for half in (each.forward, each.backward))
        done = sorted((w.unit, w.macs, w.vector_cycles, w.moved_bytes) for w in works)
        found.append((done, each.parameters, each.saved_bytes, each.working_bytes, each.output_bytes))
    return found


def test_an_efficient_net_is_the_same_from_a_module_a_graph_module_and_a_file(tmp_path):
    with torch.device("meta"):
        module, x = efficient(), torch.zeros(1, 3, 32, 32)
    expected = figures(workload_of(EFFICIENT, "efficient", LoadOptions()))
    recorded = from_torch(module, (x,))
    assert figures(recorded) == expected
    assert figures(from_torch(torch.fx.symbolic_trace(module), (x,))) == expected
    (tmp_path / "efficient.onnx").write_bytes(to_onnx(recorded))
    assert figures(load_workload(str(tmp_path / "efficient.onnx"))) == expected


def test_adaptive_pooling_to_the_size_there_is_does_nothing():
    with torch.device("meta"):
        module, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(6)), torch.zeros(1, 3, 8, 8)
    kinds = [op.kind for op in from_torch(module, (x,)).operator_graph(1).operators]
    assert "pool" not in kinds
    assert "view" in kinds
