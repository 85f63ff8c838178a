"""Models of others that would take endless time or memory: refused in one sentence, at once."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from onnx_tiny import node, save, tensor, weight

from phaze.errors import InputError
from phaze.workload.onnx import load_onnx
from phaze.workload.operators.operator_graph import GraphBuilder
from phaze.workload.operators.recurrent_layers import MOST_UNROLLED
from phaze.workload.torch_export.pt2_archive import MOST_BYTES, MOST_VALUES, load_pt2
from phaze.workload.torch_export.symbolic_sizes import evaluate

RECORDED = Path(__file__).parents[2] / "data/exported/decoder.json"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("Pow(Integer(2), Pow(Integer(10), Integer(10)))", "out of range"),
        ("Pow(Pow(9, 9), 9)", "not a number between"),
        ("Mul(" + "Integer(99999), " * 500 + "1)", "not a number between"),
        ("Pow(-8, 0.5)", "not a number between"),
        ("Mod(Integer(3), Integer(0))", "zero"),
        ("TruncToInt(Float('inf'))", "not a number between"),
        ("Max()", "has no value"),
        ("1" + "+1" * 6000, "not an expression of at most"),
    ],
)
def test_sizes_are_bounded_on_the_way(expression, message):
    with pytest.raises(ValueError, match=message):
        evaluate(expression, {})


def test_large_powers_within_bounds_are_exact():
    assert evaluate("Pow(Integer(3), Integer(40))", {}) == 3**40
    assert evaluate("Pow(Integer(1), Integer(10000))", {}) == 1


def archive(folder, content, **changes):
    path = folder / "x.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("x/models/model.json", content)
    data = bytearray(path.read_bytes())
    for header, (offset, value) in changes.items():
        places = (0, data.index(b"PK\1\2") + 2)
        for place in places:
            data[place + offset] = value
        assert header
    path.write_bytes(data)
    return path


def test_archives_that_cannot_be_read_are_told(tmp_path):
    content = RECORDED.read_bytes()
    with pytest.raises(InputError, match=r"x/models/model.json is encrypted"):
        load_pt2(archive(tmp_path, content, encrypted=(6, 1)))
    with pytest.raises(InputError, match="compressed in a way"):
        load_pt2(archive(tmp_path, content, method=(8, 14)))
    path = archive(tmp_path, content)
    data = bytearray(path.read_bytes())
    data[80:120] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged or another format"):
        load_pt2(path)


def test_small_archives_of_large_content_are_refused(tmp_path):
    with pytest.raises(InputError, match=f"at most {MOST_BYTES} are read"):
        load_pt2(archive(tmp_path, b" " * (MOST_BYTES + 1)))
    with pytest.raises(InputError, match=f"at most {MOST_VALUES} are read"):
        load_pt2(archive(tmp_path, b"[" + b"[]," * MOST_VALUES + b"1]"))


def test_a_tensor_has_one_producer(tmp_path):
    document = json.loads(RECORDED.read_text(encoding="utf-8"))
    nodes = document["graph_module"]["graph"]["nodes"]
    nodes.append(nodes[2])
    with pytest.raises(InputError, match="tensor 'embedding' has two producers"):
        load_pt2(archive(tmp_path, json.dumps(document)), {"tokens[1]": 8})


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_are_not_unrolled_without_end(tmp_path, kind, gates):
    constants = [weight("w", 1, gates * 8, 6), weight("r", 1, gates * 8, 8)]
    layer = node(kind, ["x", "w", "r"], ["y"], hidden_size=8)
    path = save(tmp_path, [layer], [tensor("x", 2_000_000, 1, 6)], constants)
    with pytest.raises(
        InputError, match=f"2000000 time steps of y.0 the graph has more than {MOST_UNROLLED}"
    ):
        load_onnx(path)


def test_weights_of_more_directions_than_two_are_refused(tmp_path):
    constants = [weight("w", 4, 32, 6), weight("r", 4, 32, 8)]
    path = save(
        tmp_path, [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=8)], [tensor("x", 5, 1, 6)], constants
    )
    with pytest.raises(InputError, match="has weights of 4 directions, not of 1"):
        load_onnx(path)


@pytest.mark.parametrize("shape", [(2**31, 2**31), (3, 0)])
def test_tensors_are_possible(shape):
    with pytest.raises(InputError, match="1 to 2"):
        GraphBuilder("g").input("x", shape)
