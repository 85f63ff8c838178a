"""Two towers: published sizes of CLIP, a chain of layers in spite of two streams, and grafted graphs."""

from collections import Counter

import pytest

from phaze.errors import InputError
from phaze.workload.families.model_family import Extent, together
from phaze.workload.families.two_tower_family import TwoTower, graft
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_library import builtin_spec
from phaze.workload.workload_loader import load_workload
from phaze.yaml_file import checked

SMALL = {
    "image": {"layers": 2, "hidden": 8, "heads": 2, "image": 8, "patch": 4, "classes": 6},
    "text": {"layers": 3, "hidden": 4, "heads": 2, "vocabulary": 11, "max_positions": 5, "features": 6},
}


def small(**changes):
    return checked(TwoTower, SMALL | changes, "test")


def grown(batch=2):
    return small().graph("small", Extent(batch, 5), Attention.FLASH)


def test_clip_has_as_many_parameters_as_published():
    """Sum over the released checkpoint ViT-B/32."""
    assert load_workload("clip-vit-b32").parameter_count == 151_277_313


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.PREFILL])
def test_each_tower_is_a_chain_of_equal_blocks(mode):
    chain = load_workload("clip-vit-b32", mode).chain(2, 1)
    assert sum(times == 12 for times in Counter(chain.index).values()) == 4
    assert "image.block3.attention" in chain.names
    assert "text.block11.mlp" in chain.names


def test_every_image_meets_every_text_in_both_directions():
    graph = grown(3)
    assert [graph.tensors[t].shape for t in graph.outputs] == [(3, 3), (3, 3)]
    losses = [
        op for op in load_workload("clip-vit-b32").operator_graph(3).operators if op.kind is OpKind.LOSS
    ]
    assert len(losses) == 2


def test_towers_work_as_they_would_alone():
    """The same operators on the same shapes; only views come in between."""
    d = small()
    whole = grown()
    alone = [t.graph("alone", Extent(2, 5), Attention.FLASH) for t in (d.image, d.text)]

    def worked(graph):
        return Counter(
            (op.kind, tuple(graph.tensors[t].shape for t in (*op.inputs, *op.outputs)))
            for op in graph.operators
            if op.kind is not OpKind.VIEW and not op.name.startswith("similarity")
        )

    assert worked(whole) == worked(alone[0]) + worked(alone[1])


def test_grafting_leads_the_entry_through_and_keeps_what_is_beside():
    part = builtin_spec("resnet18").dimensions.graph("part", Extent(2), Attention.FLASH)
    g = GraphBuilder("whole")
    image, other = g.input("image", (2, 3, 224, 224)), g.input("other", (2, 7))
    made, beside = graft(g, part, image, other)
    assert g.shape(made) == (2, 1000)
    assert g.shape(beside) == (2, 7)
    graph = g.build((made, beside))
    assert len(graph.parameters()) == len(part.parameters())
    assert sum(op.kind is OpKind.CONV for op in graph.operators) == 20


def test_together_moves_nothing():
    g = GraphBuilder("g")
    a, b = g.input("a", (2, 3, 4)), g.input("b", (2, 5))
    again = together(g, "cut", a, b)
    assert [g.shape(t) for t in again] == [(2, 3, 4), (2, 5)]
    assert {op.kind for op in g.build(again).operators} == {OpKind.VIEW}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": SMALL["image"] | {"classes": 7}}, r"image.classes \(7\) and text.features \(6\)"),
        ({"text": SMALL["text"] | {"heads": 3}}, "text: hidden"),
        ({"sound": {}}, "no such field"),
    ],
)
def test_bad_towers(changes, message):
    with pytest.raises(InputError, match=message):
        small(**changes)
