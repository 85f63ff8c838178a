"""Programs as a whole: names, in-place updates, dead code, the batch, and what is refused."""

import sys

import pytest
from exported_tiny import B, Recorder, summary

import phaze
from phaze.errors import InputError
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.torch_export.exported_model import join_recordings


@pytest.fixture
def r():
    return Recorder()


def refusal(r, *outputs):
    with pytest.raises(InputError) as caught:
        r.model(*outputs)
    return str(caught.value)


def test_operators_are_called_by_their_modules(r):
    x = r.input("x", B, 8)
    for block in ("layers.0", "layers.1"):
        up = r.call(
            "linear", (B, 8), input=x, weight=r.weight(f"{block}.up.weight", 8, 8), module=f"{block}.up"
        )
        act = r.call("gelu", (B, 8), self=up, module=f"{block}.act")
        x = r.call("add", (B, 8), self=x, other=act, module=block)
    end = r.call("add", (B, 8), self=r.call("add", (B, 8), self=x, other=x), other=x)
    names = [op.name for op in r.graph(end).operators]
    assert names[:3] == ["layers.0.up", "layers.0.act", "layers.0.add"]
    assert names[3:] == ["layers.1.up", "layers.1.act", "layers.1.add", "add", "add_2"]


def test_a_module_called_twice_and_a_name_that_is_taken_are_numbered(r):
    x = r.input("add", B, 8)
    for _ in range(2):
        x = r.call("tanh", (B, 8), self=x, module="act")
    names = [op.name for op in r.graph(r.call("add", (B, 8), self=x, other=x)).operators]
    assert names == ["act.tanh", "act.tanh_2", "add_2"]


def test_what_no_output_needs_is_dropped(r):
    x = r.input("x", B, 8)
    r.call("histc", (7,), self=x)
    turned = r.call("aten.t.default", (8, 5), self=r.weight("w", 5, 8))
    graph = r.graph(r.call("mm", (B, 5), self=x, mat2=turned))
    assert [op.kind for op in graph.operators] == [OpKind.MATMUL]


def test_after_an_update_in_place_everything_reads_its_result(r):
    x = r.input("x", B, 8)
    hidden = r.call("tanh", (B, 8), self=x)
    r.call("aten.add_.Tensor", (B, 8), self=hidden, other=x)
    graph = r.graph(r.call("relu", (B, 8), self=hidden))
    assert [function for _, function, _, _ in summary(graph)] == ["tanh", "add", "relu"]
    assert graph.operators[2].inputs == ("add",)


def overwritten(r):
    """A tensor of which the first half was overwritten, and the view of that half."""
    x = r.input("x", B, 8)
    part = r.call("slice", (B, 4), self=x, dim=1, end=4)
    r.call("copy_", (B, 4), self=part, src=r.call("neg", (B, 4), self=part))
    return x, part


def test_a_part_that_is_overwritten_is_put_back_into_its_tensor(r):
    x, part = overwritten(r)
    graph = r.graph(r.call("add", (B, 8), self=x, other=r.call("tile", (B, 8), self=part)))
    assert [(op.attributes.get("function"), op.inputs) for op in graph.operators] == [
        (None, ("x",)),
        ("neg", ("slice",)),
        (None, ("neg",)),
        (None, ("x", "copy")),
        (None, ("copy",)),
        ("add", ("slice_scatter", "tile")),
    ]


def test_a_view_from_before_its_tensor_was_overwritten_in_part_is_refused(r):
    x = r.input("x", B, 8)
    before = r.call("view", (B, 2, 4), self=x)
    part = r.call("slice", (B, 4), self=x, dim=1, end=4)
    r.call("copy_", (B, 4), self=part, src=r.call("neg", (B, 4), self=part))
    message = refusal(r, r.call("relu", (B, 2, 4), self=before))
    assert "relu" in message
    assert "run_decompositions" in message


def test_what_is_left_of_a_division_is_one_operation_for_each_element(r):
    x = r.input("x", B, 8)
    graph = r.graph(r.call("fmod", (B, 8), self=r.call("remainder", (B, 8), self=x, other=3), other=x))
    assert [op.attributes["function"] for op in graph.operators] == ["scale", "div"]


def test_unsupported_operators_are_named_and_counted(r):
    x = r.input("x", B, 8)
    x = r.call("frob", (B, 8), x1=x, x2=x, module="block.mix")
    x = r.call("frobnicate", (B, 8), self=r.call("frobnicate", (B, 8), self=x))
    message = refusal(r, r.call("relu", (B, 8), self=x))
    assert message == (
        "tiny: unsupported operator aten.frob.default (node 'n0' in module 'block.mix'); "
        "2 more unsupported: aten.frobnicate.default (2)"
    )


@pytest.mark.parametrize(
    ("target", "shape", "arguments"),
    [
        ("sum", (8,), {"dim": (0,)}),
        ("amax", (), {}),
        ("softmax", (B, 8), {"dim": 0}),
    ],
)
def test_samples_that_are_mixed_are_refused(r, target, shape, arguments):
    x = r.input("x", B, 8)
    message = refusal(r, r.call(target, shape, self=x, **arguments))
    assert "does not keep the batch" in message
    assert target in message


def test_similarities_of_all_samples_may_come_of_a_model_but_not_be_mixed_again(r):
    x, y = r.input("x", B, 8), r.input("y", B, 8)
    pairs = r.call("matmul", (B, B), self=x, other=r.call("t", (8, B), self=y))
    graph = r.graph(pairs)
    assert graph.tensors[graph.outputs[0]].shape == (graph.tensors["x"].shape[0],) * 2
    message = refusal(r, r.call("matmul", (B, 8), self=pairs, other=x))
    assert "every sample against every other" in message


def test_windows_need_the_batch_first(r):
    x = r.input("x", 6, B, 9, 9)
    message = refusal(r, r.call("conv2d", (8, B, 9, 9), input=x, weight=r.weight("w", 8, 6, 1, 1)))
    assert "not the first dimension" in message


def test_shapes_scale_with_the_batch_along_any_one_axis(r):
    x = r.input("x", B, 6, 8)
    rows = r.call("view", ((B, 6), 8), self=x)
    moved = r.call("transpose", (8, (B, 6)), self=rows, dim0=0, dim1=1)
    model = r.model(moved)
    assert [model.graph(b).tensors["transpose"].shape for b in (1, 3, 10)] == [(8, 6), (8, 18), (8, 60)]
    with pytest.raises(InputError, match="batch 0 is below 1"):
        model.graph(0)


def test_a_program_that_changes_with_the_batch_is_refused(r):
    other = Recorder()
    for recorder, target in ((r, "relu"), (other, "tanh")):
        made = recorder.call(target, (B, 8), self=recorder.input("x", B, 8))
    first, second = r.program(2, made), other.program(14, made)
    with pytest.raises(InputError, match=r"depends on the batch: aten.relu.default \(n0\) becomes aten.tanh"):
        join_recordings("tiny", first, second)


def test_outputs_must_come_from_inputs(r):
    r.input("x", B, 8)
    assert "no output is computed from an input" in refusal(r, r.call("relu", (5,), self=r.weight("w", 5)))


def test_a_further_result_that_nobody_makes_is_refused(r):
    x = r.input("x", B, 8)
    _, mean, _ = r.call("native_layer_norm", (B, 8), (B, 1), (B, 1), input=x)
    assert "further result" in refusal(r, r.call("relu", (B, 1), self=mean))


def test_zeros_shaped_like_an_activation_hold_nothing_of_it(r):
    x = r.input("x", B, 8)
    zeros = r.call("zeros_like", (B, 8), self=x)
    graph = r.graph(r.call("add", (B, 8), self=x, other=zeros))
    assert summary(graph) == [(OpKind.ELEMENTWISE, "scale", ("x",), (4, 8))]


def test_without_torch_a_module_is_refused_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"pip install '\.\[torch\]'"):
        phaze.from_torch(object(), (1,), name="m")


def test_a_public_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'from_tensorflow'"):
        phaze.from_tensorflow  # noqa: B018
