"""Attention as exporters of ONNX write it out: rotary tables stored, masks by comparison, rows without keys guarded."""

import numpy as np
import pytest
from onnx import numpy_helper, parser, save

from phaze.workload.onnx import load_onnx
from phaze.workload.operators.operator_graph import OpKind

HEADS, ROWS, SIZE = 4, 6, 8
_BIASES = {"q_bias", "k_bias", "v_bias"}
_MASKS = {
    "compared": "at = Range (zero, rows, one)  up = Unsqueeze (at, one_axis)  seen = LessOrEqual (at, up)",
    "triangle": "every = ConstantOfShape (square)  told = Cast <to = 9> (every)  seen = Trilu <upper = 0> (told)",
    "stored": "seen = Identity (lower)",
    "padding": "seen = Identity (padding)",
}
_GUARDS = {
    "none": "weights = Identity (soft)",
    "nan": "lost = IsNaN (soft)  weights = Where (lost, nought, soft)",
}
_TURNS = {
    "tables": "turned = Concat <axis = -1> (less, first)  a = Mul (q, cosines)  b = Mul (turned, sines)",
    "no turn": "turned = Concat <axis = -1> (second, first)  a = Mul (q, cosines)  b = Mul (turned, sines)",
}


def attention(folder, mask="compared", guard="nan", turn="tables"):
    """Graph of one attention whose queries are rotated, and its parameters by name."""
    text = f"""
        <ir_version: 9, opset_import: ["" : 18]>
        one (float[1, {HEADS}, {ROWS}, {SIZE}] x) => (float[1, {HEADS}, {ROWS}, {SIZE}] y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64 rows = {{{ROWS}}}, int64[1] one_axis = {{1}},
         int64[2] square = {{{ROWS}, {ROWS}}}, int64[1] start = {{0}}, int64[1] half = {{{SIZE // 2}}},
         int64[1] end = {{{SIZE}}}, int64[1] last = {{-1}}, float nought = {{0.0}}, float low = {{-1e30}},
         float root = {{0.5}}>
        {{
            q = Add (x, q_bias)  k = Add (x, k_bias)  v = Add (x, v_bias)
            first = Slice (q, start, half, last)  second = Slice (q, half, end, last)  less = Neg (second)
            {_TURNS[turn]}
            rotated = Add (a, b)
            scaled = Mul (rotated, root)
            across = Transpose <perm = [0, 1, 3, 2]> (k)
            keys = Mul (across, root)
            scores = MatMul (scaled, keys)
            {_MASKS[mask]}
            hidden = Where (seen, nought, low)
            masked = Add (scores, hidden)
            soft = Softmax <axis = -1> (masked)
            {_GUARDS[guard]}
            y = MatMul (weights, v)
        }}"""
    model = parser.parse_model(text)
    angles = np.arange(ROWS)[:, None] * np.linspace(1, 0.1, SIZE)
    stored = {
        "cosines": np.cos(angles)[None, None].astype(np.float32),
        "sines": np.sin(angles)[None, None].astype(np.float32),
        "lower": np.tril(np.ones((ROWS, ROWS), bool)),
        "padding": np.ones((1, 1, 1, ROWS), bool),
    }
    stored |= dict.fromkeys(_BIASES, np.ones(SIZE, np.float32))
    model.graph.initializer.extend(
        numpy_helper.from_array(v, name) for name, v in stored.items() if name in text
    )
    save(model, folder / "attention.onnx")
    graph = load_onnx(folder / "attention.onnx").graph(2)
    return graph, {name for name, found in graph.tensors.items() if found.is_parameter}


@pytest.mark.parametrize("guard", _GUARDS)
@pytest.mark.parametrize(
    ("mask", "causal"), [("compared", True), ("triangle", True), ("stored", True), ("padding", False)]
)
def test_it_is_one_kernel_after_a_rotation_and_tables_are_not_trained(mask, causal, guard, tmp_path):
    graph, parameters = attention(tmp_path, mask, guard)
    work = [op for op in graph.operators if op.kind is not OpKind.VIEW]
    assert [
        (op.kind, op.attributes.get("function")) for op in work if op.attributes.get("function") != "add"
    ] == [
        (OpKind.ELEMENTWISE, "rope"),
        (OpKind.ATTENTION, None),
    ]
    assert work[-1].attributes["causal"] is causal
    assert (work[-1].attributes["heads"], work[-1].attributes["head_size"]) == (HEADS, SIZE)
    assert parameters == _BIASES


def test_what_is_not_turned_keeps_its_tables(tmp_path):
    graph, parameters = attention(tmp_path, turn="no turn")
    assert parameters == {"cosines", "sines", *_BIASES}
    assert "rope" not in {op.attributes.get("function") for op in graph.operators}
