"""Symbolic dimensions of inputs: the batch found by its name, all others bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_tiny import node, save, tensor

from phaze.errors import InputError
from phaze.workload.onnx import load_onnx
from phaze.workload.onnx.input_dimensions import parse_formula


def loaded(folder, *inputs, **bind):
    """The model that adds nothing to its inputs, one output each."""
    nodes = [node("Relu", [name], [f"{name}.y"]) for name, *_ in inputs]
    outputs = [f"{name}.y" for name, *_ in inputs]
    path = save(folder, nodes, [tensor(name, *dims) for name, *dims in inputs], outputs=outputs)
    return load_onnx(path, bind)


def shapes(model, batch):
    return [model.graph(batch).tensors[name].shape for name in model.graph(batch).inputs]


@pytest.mark.parametrize("symbol", ["batch", "batch_size", "N", "micro_batch", "BatchSize", "bs"])
def test_the_batch_is_known_by_its_name_wherever_it_stands(tmp_path, symbol):
    model = loaded(tmp_path, ("x", "time", symbol, 4), ("h", 2, symbol, 4), time=6)
    assert shapes(model, 3) == [(6, 3, 4), (2, 3, 4)]
    assert model.bound_batch is None


def test_a_bound_batch_is_remembered_and_the_graph_still_has_any(tmp_path):
    model = loaded(tmp_path, ("x", "batch", "seq"), batch=8, seq=5)
    assert (model.bound_batch, shapes(model, 3)) == (8, [(3, 5)])


def test_without_such_a_name_the_first_dimension_is_the_batch(tmp_path):
    assert shapes(loaded(tmp_path, ("x", "rows", 4), ("y", 1, 4)), 3) == [(3, 4), (3, 4)]


def test_fixed_inputs_beside_a_symbolic_batch_have_none_unless_it_is_one(tmp_path):
    assert shapes(loaded(tmp_path, ("x", "batch", 4), ("y", 7, 4), ("z", 1, 4)), 3) == [
        (3, 4),
        (7, 4),
        (3, 4),
    ]


def test_formulas_of_symbols_follow_from_their_symbols(tmp_path):
    inputs = [("x", "batch", "past + seq // 2 - 1"), ("y", "2*batch", "seq")]
    assert shapes(loaded(tmp_path, *inputs, past=10, seq=6), 3) == [(3, 12), (6, 6)]
    with pytest.raises(
        InputError, match=r"symbolic dimensions need a size: give --bind past=\.\.\.,seq=\.\.\.$"
    ):
        loaded(tmp_path, *inputs)


@pytest.mark.parametrize(
    "odd", ["seq len", "a.b", "x[2]", "Größe", "f(x)", "2seq", "a-", "a" * 300, "1 << 9"]
)
def test_odd_names_are_names(tmp_path, odd):
    model = loaded(tmp_path, ("x", "batch", odd), **{odd: 5})
    assert shapes(model, 2) == [(2, 5)]


def test_symbols_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match=r"no symbolic dimension is called 'sek': it has batch, seq$"):
        loaded(tmp_path, ("x", "batch", "seq"), sek=5, seq=5)
    with pytest.raises(InputError, match=r"no symbolic dimension is called 'seq': it has none$"):
        loaded(tmp_path, ("x", 1, 4), seq=5)
    with pytest.raises(InputError, match=r"N, batch are the batch, and cannot differ$"):
        loaded(tmp_path, ("x", "batch", 4), ("y", "N", 4), batch=2, N=3)
    for wrong in ("seq - 9", "seq // zero - seq"):
        with pytest.raises(InputError, match="would have shape"):
            loaded(tmp_path, ("x", "batch", wrong), ("y", "batch", "zero"), seq=5, zero=1)


@given(st.text(max_size=20))
def test_any_text_is_a_formula_or_a_name(text):
    formula = parse_formula(text)
    assert isinstance(formula.value(dict.fromkeys(formula.symbols, 3)), int)
