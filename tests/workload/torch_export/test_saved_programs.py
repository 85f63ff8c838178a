"""Files of `torch.export.save`, read without torch. `decoder.json` is the graph of one such file.

It was recorded with torch 2.13 from two blocks (width 16, 2 heads, vocabulary 50, tied table) with dynamic
batch and tokens; the rotary-like table stands under `no_grad`, so it is a nested graph.
"""

import copy
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.torch_export.pt2_archive import load_pt2
from phaze.workload.torch_export.symbolic_sizes import evaluate, symbols
from phaze.workload.workload_loader import load_workload

RECORDED = Path(__file__).parents[2] / "data/exported/decoder.json"
HIDDEN, VOCABULARY, TOKENS = 16, 50, 32
BLOCK = 12 * HIDDEN**2 + (3 + 1 + 4 + 1) * HIDDEN + 2 * 2 * HIDDEN


@pytest.fixture(scope="module")
def document():
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def save(folder, document, name="decoder"):
    """An archive as `torch.export.save` writes it, with weights that nobody may read."""
    path = folder / f"{name}.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/models/model.json", json.dumps(document))
        archive.writestr(f"{name}/data/weights/weight_0", b"not a tensor")
    return path


@pytest.fixture
def path(tmp_path, document):
    return save(tmp_path, document)


def test_a_saved_decoder(path):
    graph = load_pt2(path, {"tokens[1]": TOKENS}).graph(3)
    kinds = [op.kind for op in graph.operators if op.kind is not OpKind.VIEW]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        OpKind.EMBEDDING: 1,
        OpKind.MATMUL: 2 * 4 + 1,
        OpKind.ATTENTION: 2,
        OpKind.NORM: 2 * 2,
        OpKind.ELEMENTWISE: 2 * (4 + 2 + 2 + 2),  # biases, residuals, rotations, relu and dropout
    }
    assert sum(t.elements for t in graph.parameters()) == VOCABULARY * HIDDEN + 2 * BLOCK
    assert graph.tensors[graph.outputs[0]].shape == (3, TOKENS, VOCABULARY)
    names = {op.name for op in graph.operators}
    assert {"layers.1.attention.qkv", "layers.0.mlp.1", "layers.1.norm2", "head", "table"} <= names


def test_layers_that_are_the_same_are_found(path):
    chain = load_workload(str(path), bind={"tokens[1]": TOKENS}).chain(2, 1)
    assert len(chain.layers) < len(chain.names)
    assert chain.workload == "decoder"
    products = 2 * (12 * HIDDEN**2 + 2 * TOKENS * HIDDEN) + HIDDEN * VOCABULARY
    assert chain.model_flops == 6 * 2 * TOKENS * products


def test_torch_is_not_imported(path):
    code = (
        "import sys; from phaze.workload.torch_export.pt2_archive import load_pt2; "
        f"load_pt2({str(path)!r}, {{'tokens[1]': 8}}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_symbol_may_be_bound_by_its_name(path, document):
    sizes = document["graph_module"]["graph"]["tensor_values"]["tokens"]["sizes"]
    (symbol,) = symbols(sizes[1]["as_expr"]["expr_str"])
    graph = load_pt2(path, {symbol: 5}).graph(1)
    assert graph.tensors[graph.outputs[0]].shape == (1, 5, VOCABULARY)


@pytest.mark.parametrize(
    ("bind", "reason"),
    [
        ({}, "needs a size: give --bind tokens[1]=..."),
        ({"tokens[1]": 0}, "cannot be 0"),
        ({"tokens[1]": 8, "length": 8}, "'length' is not one of"),
    ],
)
def test_bindings(path, bind, reason):
    with pytest.raises(InputError) as caught:
        load_pt2(path, bind)
    assert reason in str(caught.value)


def test_a_fixed_batch_is_refused_with_the_way_out(tmp_path, document):
    fixed = copy.deepcopy(document)
    fixed["graph_module"]["graph"]["tensor_values"]["tokens"]["sizes"][0] = {"as_int": 2}
    with pytest.raises(InputError, match=r"first dimension of the inputs is fixed.*dynamic_shapes"):
        load_pt2(save(tmp_path, fixed))


def test_control_flow_is_refused(tmp_path, document):
    changed = copy.deepcopy(document)
    nodes = changed["graph_module"]["graph"]["nodes"]
    nested = next(n for n in nodes if n["target"].startswith("torch.ops.higher_order"))
    nested["target"] = "torch.ops.higher_order.cond"
    with pytest.raises(InputError, match=r"control flow torch\.ops\.higher_order\.cond is not supported"):
        load_pt2(save(tmp_path, changed), {"tokens[1]": 8})


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "no graph", "version", "no json"])
def test_unreadable_files_are_named(tmp_path, document, damage):
    path = tmp_path / "bad.pt2"
    if damage == "empty":
        path.touch()
    elif damage == "text":
        path.write_text("weights")
    elif damage == "no graph":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("bad/data/weights/weight_0", b"")
    elif damage == "version":
        path = save(tmp_path, document | {"schema_version": {"major": 5}}, "bad")
    elif damage == "no json":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("bad/models/model.json", "{")
    with pytest.raises(InputError, match=r"bad\.pt2"):
        load_pt2(path)


def places(value, at=()):
    """Paths of everything in a JSON document."""
    yield at
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*at, key))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_document_changed_anywhere_is_read_or_refused(data, tmp_path_factory):
    document = json.loads(RECORDED.read_text(encoding="utf-8"))
    known = [p for p in places(document) if p]
    *outer, last = known[data.draw(st.integers(0, len(known) - 1))]
    target = document
    for key in outer:
        target = target[key]
    target[last] = data.draw(st.sampled_from([None, -1, 0, 2**70, "", "x", [], {}, [1], {"as_int": -3}, 0.5]))
    path = save(tmp_path_factory.mktemp("fuzz"), document)
    try:
        load_pt2(path, {"tokens[1]": 8})
    except InputError as error:
        assert str(path) in str(error) or "decoder" in str(error)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("Integer(6)", 6),
        ("Mul(Integer(6), Symbol('s0', positive=True, integer=True))", 18),
        ("Add(Integer(-1), Symbol('s0'))", 2),
        ("FloorDiv(Mul(Integer(7), Symbol('s0')), Integer(2))", 10),
        ("Mul(Rational(1, 3), Symbol('s0'))", 1),
        ("Pow(Symbol('s0'), Integer(2))", 9),
    ],
)
def test_symbolic_sizes(expression, value):
    assert evaluate(expression, {"s0": 3}) == value


@pytest.mark.parametrize(
    "expression", ["Symbol('s1')", "Mul(", "__import__('os')", "Rational(1, 2)", "Sin(1)", "[]"]
)
def test_expressions_that_are_no_sizes(expression):
    with pytest.raises(ValueError, match=r".+"):
        evaluate(expression, {"s0": 3})
