"""Drawings of workloads: what they hold, and that every format survives any name."""

import html
import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.report.charts.operator_graph_chart import (
    NodePass,
    draw_layer,
    draw_model,
    repeats,
    to_dot,
    to_json,
    to_mermaid,
    to_svg,
)
from phaze.workload.work import Layer, LayerChain, Pass, Unit, Work
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload


@pytest.fixture(scope="module")
def chains():
    return {mode: load_workload("resnet18", mode).chain(1, 1) for mode in (Mode.TRAINING, Mode.PREFILL)}


def test_a_training_drawing_goes_forward_and_back_and_hands_over_in_every_layer(chains):
    chain = chains[Mode.TRAINING]
    drawing = draw_model(chain, "training")
    count = len(chain.index)
    ids = [(drawing.nodes[a].id, drawing.nodes[b].id) for a, b in drawing.edges]
    assert len(drawing.nodes) == 2 * count
    assert len(ids) == len(set(ids)) == 3 * count - 2
    assert {(f"f{i}", f"b{i}") for i in range(1, count + 1)} <= set(ids)
    assert ("f1", "f2") in ids
    assert ("b2", "b1") in ids
    assert all(a < b for a, b in drawing.edges)


def test_a_prefill_drawing_has_no_way_back(chains):
    drawing = draw_model(chains[Mode.PREFILL], "prefill")
    assert {node.side for node in drawing.nodes} == {NodePass.FORWARD}
    assert len(drawing.edges) == len(drawing.nodes) - 1


def test_drawn_flops_are_those_of_the_model(chains):
    chain = chains[Mode.TRAINING]
    whole = draw_model(chain, "training")
    assert sum(node.totals.flops for node in whole.nodes) == chain.model_flops
    layer = draw_layer(chain, "training", "basic1")
    position = chain.names.index("basic1")
    assert sum(node.totals.flops for node in layer.nodes) == chain.layers[chain.index[position]].model_flops


def test_a_layer_is_found_by_name_and_by_number(chains):
    chain = chains[Mode.PREFILL]
    for number, name in enumerate(chain.names, 1):
        assert draw_layer(chain, "prefill", name) == draw_layer(chain, "prefill", str(number))


@pytest.mark.parametrize("which", ["0", "999", "-1", "basik1", "", "1.5"])
def test_an_unknown_layer_is_an_error(chains, which):
    with pytest.raises(InputError, match="has layers 1 to"):
        draw_layer(chains[Mode.PREFILL], "prefill", which)


@given(st.lists(st.integers(0, 2), max_size=60))
def test_repeats_cover_the_sequence_and_say_it_again(numbers):
    again, position = [], 0
    for start, length, times in repeats(numbers):
        assert start == position
        again += numbers[start : start + length] * times
        position += length * times
    assert again == numbers


def test_a_stack_of_equal_blocks_is_one_pattern():
    assert list(repeats([0, *([1, 2] * 96), 3])) == [(0, 1, 1), (1, 2, 96), (193, 1, 1)]


def chain_called(*names):
    """One layer whose operators have these names, one behind the other."""
    works = tuple(Work(name, "matmul", Unit.TENSOR, stream_bytes=8.0) for name in names)
    one = Pass(works, tuple((i, i + 1) for i in range(len(names) - 1)))
    return LayerChain(names[0], 1, 1, (Layer("k", one, one, 0, 0, 0, 0, 0, 0),), (0,), ("layer",))


NAMES = st.lists(st.text(max_size=12), min_size=1, max_size=3)
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


@settings(max_examples=60)
@given(NAMES)
def test_dot_quotes_every_name(names):
    text = to_dot(draw_layer(chain_called(*names), "training", "1"))
    assert '"' not in STRING.sub("", text)
    labels = re.findall(r'label="((?:[^"\\\n]|\\.)*)", fillcolor', text)
    shown = ["".join(c for c in name if c.isprintable()) for name in names]
    for name, label in zip(shown * 2, labels, strict=True):
        assert re.sub(r"\\(.)", r"\1", label.rpartition("\\n")[0]) == name


@settings(max_examples=60)
@given(NAMES)
def test_mermaid_escapes_every_name(names):
    text = to_mermaid(draw_layer(chain_called(*names), "training", "1"))
    labels = re.findall(r'^    [fb]\d+\["(.*)<br/>.*"\]:::', text, re.MULTILINE)
    shown = ["".join(c for c in name if c.isprintable()) for name in names]
    for name, label in zip(shown * 2, labels, strict=True):
        assert not set(label) & set('"<>`[]{}|&')
        assert html.unescape(re.sub(r"#(\d+);", r"&#\1;", label)) == name


def test_json_says_what_the_drawing_says(chains):
    drawing = draw_layer(chains[Mode.TRAINING], "training", "basic2")
    document = json.loads(to_json(drawing))
    assert (document["format"], document["layer"], document["mode"]) == ("dse-graph/1", "basic2", "training")
    assert [node["id"] for node in document["nodes"]] == [node.id for node in drawing.nodes]
    ids = {node["id"] for node in document["nodes"]}
    assert len(ids) == len(document["nodes"])
    assert all({before, after} <= ids for before, after in document["edges"])
    assert {node["pass"] for node in document["nodes"]} == {"forward", "backward"}


SVG = "{http://www.w3.org/2000/svg}"


def boxes(drawing):
    """Lines and corners of every box of a picture, which is well-formed XML."""
    root = ElementTree.fromstring(to_svg(drawing))
    found = []
    for group in root.iter(f"{SVG}g"):
        x, y, width, height = (float(group.find(f"{SVG}rect").get(k)) for k in ("x", "y", "width", "height"))
        found.append(([t.text for t in group.iter(f"{SVG}text")], (x, y, x + width, y + height)))
    return root, found


def test_svg_draws_a_pattern_of_layers_once(chains):
    root, found = boxes(draw_model(chains[Mode.TRAINING], "training"))
    firsts = [lines[0] for lines, _ in found]
    assert len(found) < len(draw_model(chains[Mode.TRAINING], "training").nodes)
    assert any(" x " in first for first in firsts)
    assert len([*root.iter(f"{SVG}path")]) > len(found)  # forward, back, and across


def test_svg_draws_the_layers_of_a_block_as_one_where_there_are_many():
    drawing = draw_model(load_workload("mobilenet-v3-large").chain(1, 1), "training")
    _, found = boxes(drawing)
    lines = {told[0]: told[1] for told, _ in found}
    inside = [n.name for n in drawing.nodes if n.side.value == "forward" and n.name.startswith("inverted2.")]
    assert len(found) < len(drawing.nodes) / 2
    assert lines["inverted2"].startswith(f"{len(inside)} layers, ")
    assert not any(line.startswith("inverted2.") for line in lines)


def test_svg_draws_no_box_over_another_and_every_operator_below_what_it_waits_for(chains):
    drawing = draw_layer(chains[Mode.TRAINING], "training", "basic2")
    _, found = boxes(drawing)
    assert len(found) == len(drawing.nodes)
    corners = [corner for _, corner in found]
    for i, (left, top, right, bottom) in enumerate(corners):
        for other in corners[i + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    assert all(corners[a][3] < corners[b][1] for a, b in drawing.edges)


@settings(max_examples=30)
@given(NAMES)
def test_svg_escapes_every_name(names):
    _, found = boxes(draw_layer(chain_called(*names), "training", "1"))
    shown = ["".join(filter(str.isprintable, name)) for name in names]
    assert [(lines[0] or "") for lines, _ in found] == shown * 2
