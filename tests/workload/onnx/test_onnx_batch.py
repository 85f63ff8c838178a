"""The batch: first dimension of each input, kept by reshapes, bound late; symbolic dimensions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto
from onnx_tiny import integers, node, save, tensor, weight

from phaze.errors import InputError
from phaze.workload.onnx import load_onnx
from phaze.workload.onnx.batch_axes import keep_batch, resolve_reshape
from phaze.workload.operators.operator_graph import OpKind


def reshape(folder, shape, *target, batch=None):
    """Output shape at a batch of 5 of an input of that shape, reshaped, with a Relu behind."""
    nodes = [node("Reshape", ["x", "target"], ["r"], name="fold"), node("Relu", ["r"], ["y"])]
    path = save(folder, nodes, [tensor("x", *shape)], [integers("target", *target)])
    graph = load_onnx(path).graph(5 if batch is None else batch)
    return graph.tensors["y"].shape


@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [
        ((1, 256, 6, 6), (1, 9216), (5, 9216)),
        ((1, 256, 6, 6), (1, -1), (5, 9216)),
        ((1, 256, 6, 6), (-1, 9216), (5, 9216)),
        ((1, 256, 6, 6), (0, -1), (5, 9216)),
        ((1, 8, 3, 3), (1, 2, 4, 3, 3), (5, 2, 4, 3, 3)),
        ((1, 8, 3, 3), (1, -1, 4), (5, 18, 4)),
        ((16, 8, 3), (16, 24), (5, 24)),
        (("N", 8, 3), (1, 24), (5, 24)),
        (("N", 8, 3), (-1, 3), (40, 3)),
        (("N", 8, 3), (0, 0, 1, 3), (5, 8, 1, 3)),
        ((1, 8, 3), (8, 3), (40, 3)),  # positions merged with the batch, as in GPT-2's products
        ((2, 8, 3, 4), (16, 12), (40, 12)),
        (("N", 8, 3), (8, 3), (40, 3)),
    ],
)
def test_a_reshape_that_keeps_the_batch_is_rewritten(tmp_path, shape, target, result):
    assert reshape(tmp_path, shape, *target) == result


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((1, 3, 4), (12,)),
        ((1, 3, 4), (-1,)),
        ((1, 3, 4), (4, -1)),
        ((1, 3, 4), (2, 6)),
        ((16, 8, 3), (8, 16, 3)),
        ((16, 8, 3), (1, 384)),
        ((16, 8, 3), (4, 4, 24)),
        (("N", 8, 3), (3, 8)),
    ],
)
def test_a_reshape_that_breaks_the_batch_is_an_error_that_names_the_node(tmp_path, shape, target):
    with pytest.raises(InputError, match=r"Reshape node 'fold' does not (keep the batch|fit)"):
        reshape(tmp_path, shape, *target)


def test_a_reshape_target_computed_from_the_shape_of_an_activation(tmp_path):
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"]),
        node("Concat", ["b", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = [integers("zero", 0), integers("rest", 2, -1)]
    path = save(tmp_path, nodes, [tensor("x", "N", 6, 4)], constants)
    graph = load_onnx(path).graph(7)
    assert graph.tensors["y"].shape == (7, 2, 12)
    assert [op.kind for op in graph.operators] == [OpKind.VIEW]
    assert graph.parameters() == ()


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("ReduceMean", {"axes": [0]}),
        ("ReduceMean", {}),
        ("Softmax", {"axis": 0}),
        ("Flatten", {"axis": 0}),
        ("Squeeze", {}),
        ("LayerNormalization", {"axis": 0}),
    ],
)
def test_any_other_use_of_the_batch_is_an_error_that_names_the_node(tmp_path, operator, attributes):
    scale = ["w"] if operator == "LayerNormalization" else []
    path = save(
        tmp_path,
        [node(operator, ["x", *scale], ["y"], name="mix", **attributes)],
        [tensor("x", 1, 3, 4)],
        [weight("w", 4)],
    )
    with pytest.raises(InputError, match=f"{operator} node 'mix' does not keep the batch"):
        load_onnx(path)


def test_joining_and_multiplying_over_the_batch_are_errors(tmp_path):
    joined = save(tmp_path, [node("Concat", ["x", "x"], ["y"], axis=0, name="join")], [tensor("x", 1, 3)])
    with pytest.raises(InputError, match="Concat node 'join' does not keep the batch"):
        load_onnx(joined)
    product = save(tmp_path, [node("Gemm", ["x", "x"], ["y"], transA=1, name="gram")], [tensor("x", 1, 3)])
    with pytest.raises(InputError, match="Gemm node 'gram' does not keep the batch"):
        load_onnx(product)


def test_a_batch_carried_on_another_axis_is_followed(tmp_path):
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("MatMul", ["t", "w"], ["m"]),
        node("Transpose", ["m"], ["y"], perm=[1, 0, 2]),
    ]
    graph = load_onnx(save(tmp_path, nodes, [tensor("x", 1, 6, 4)], [weight("w", 4, 9)])).graph(3)
    assert graph.tensors["m"].shape == (6, 3, 9)
    assert graph.tensors["y"].shape == (3, 6, 9)


def test_every_input_of_the_first_ones_size_gets_the_batch(tmp_path):
    add = [node("Add", ["a", "b"], ["y"])]
    graph = load_onnx(save(tmp_path, add, [tensor("a", 1, 4), tensor("b", "N", 4)])).graph(6)
    assert {graph.tensors[name].shape for name in "aby"} == {(6, 4)}
    graph = load_onnx(save(tmp_path, add, [tensor("a", 1, 4), tensor("b", 3, 4)])).graph(6)
    assert {graph.tensors[name].shape for name in "aby"} == {(6, 4)}
    graph = load_onnx(save(tmp_path, add, [tensor("a", 3, 2, 4), tensor("b", 2, 4)])).graph(6)
    assert [graph.tensors[name].shape for name in "aby"] == [(6, 2, 4), (2, 4), (6, 2, 4)]
    with pytest.raises(InputError, match="Add node 'y' has impossible inputs"):
        load_onnx(save(tmp_path, add, [tensor("a", 2, 4), tensor("b", 3, 4)]))
    with pytest.raises(InputError, match="batch 0 is below 1"):
        load_onnx(save(tmp_path, add, [tensor("a", 1, 4), tensor("b", 1, 4)])).graph(0)


def test_symbolic_dimensions_need_a_value(tmp_path):
    nodes = [node("Gather", ["table", "ids"], ["y"])]
    ids = tensor("ids", "batch", "seq", kind=TensorProto.INT64)
    path = save(tmp_path, nodes, [ids], [weight("table", 100, 16)])
    with pytest.raises(InputError, match="symbolic dimensions need a size: give --bind seq="):
        load_onnx(path)
    graph = load_onnx(path, {"seq": 12}).graph(2)
    assert graph.tensors["y"].shape == (2, 12, 16)
    assert graph.operators[0].kind is OpKind.EMBEDDING
    with pytest.raises(InputError, match="no symbolic dimension is called 'sec': it has batch, seq"):
        load_onnx(path, {"sec": 12})
    with pytest.raises(InputError, match="dimension 'seq' cannot be 0"):
        load_onnx(path, {"seq": 0})


def test_a_nameless_dimension_is_called_by_its_place(tmp_path):
    path = save(tmp_path, [node("Relu", ["x"], ["y"])], [tensor("x", "N", None, 4)])
    with pytest.raises(InputError, match=r"bind x\[1\]="):
        load_onnx(path)
    assert load_onnx(path, {"x[1]": 3}).graph(2).tensors["y"].shape == (2, 3, 4)


def test_a_batch_inside_merged_axes_is_followed_and_found_again(tmp_path):
    """torch's attention merges (positions, batch) and (batch, heads); both are taken apart later."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("Reshape", ["t", "heads"], ["h"]),  # (positions, batch x heads, width)
        node("Transpose", ["h"], ["q"], perm=[1, 0, 2]),
        node("Relu", ["q"], ["r"]),
        node("Transpose", ["r"], ["u"], perm=[1, 0, 2]),
        node("Reshape", ["u", "rows"], ["m"]),  # (positions x batch, width)
        node("MatMul", ["m", "w"], ["p"]),
        node("Reshape", ["p", "apart"], ["a"]),
        node("Transpose", ["a"], ["y"], perm=[1, 0, 2]),
    ]
    for batch in (1, 2):
        targets = {"heads": (6, 4 * batch, 5), "rows": (6 * batch, 20), "apart": (6, batch, 20)}
        constants = [weight("w", 20, 20), *(integers(name, *sizes) for name, sizes in targets.items())]
        graph = load_onnx(save(tmp_path, nodes, [tensor("x", batch, 6, 20)], constants)).graph(3)
        assert [graph.tensors[t].shape for t in "hqpy"] == [(6, 12, 5), (12, 6, 5), (18, 20), (3, 6, 20)]
    mixed = [node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), node("Reshape", ["t", "rows"], ["m"])]
    mixed += [node("Reshape", ["m", "apart"], ["y"], name="mix")]  # batch and positions change places
    constants = [integers("rows", 10, 20), integers("apart", 2, 5, 20)]
    with pytest.raises(InputError, match="Reshape node 'mix' does not keep the batch"):
        load_onnx(save(tmp_path, mixed, [tensor("x", 2, 5, 20)], constants))


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@given(sizes, sizes, st.integers(2, 9))
def test_a_kept_reshape_moves_no_element_between_samples(inner, target, factor):
    """Row-major places of sample 0 in a reshape that is accepted are the same at any batch."""
    before, grown = (1, *inner), (factor, *inner)
    at_file = resolve_reshape(before, target, allow_zero=False)
    if at_file is None:
        return
    for rewrite in (True, False):
        natural = resolve_reshape(grown, target, allow_zero=False)
        kept = keep_batch((before, grown), at_file, natural, file_batch=1, rewrite=rewrite)
        if kept is not None:
            kept, before_batch = kept
            (axis,) = [i for i, (a, b) in enumerate(zip(at_file, kept, strict=True)) if a != b]
            assert before_batch == 1
            assert math.prod(kept) == factor * math.prod(inner)
            assert math.prod(kept[:axis]) == 1
            assert kept[axis] == factor * at_file[axis]
