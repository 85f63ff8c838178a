"""ONNX files of workloads: valid, small, and the same model to whoever reads them."""

from __future__ import annotations

from collections import Counter
from itertools import chain as joined

import onnx
import pytest

from phaze.errors import InputError
from phaze.report.exports.onnx.onnx_file import onnx_model, to_onnx, without_loss
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_loader import load_workload

ALIKE = [
    *("resnet18", "mobilenet-v3-large", "inception-v3"),
    *("bert-base", "gpt3-small", "gemma-2b", "t5-11b"),
    *("vit-b16", "dlrm"),
]


def saved(workload, tmp_path):
    """The file of a workload, checked."""
    file = tmp_path / f"{workload.name}.onnx"
    file.write_bytes(to_onnx(workload))
    onnx.checker.check_model(str(file), full_check=True)
    return file


def operators(workload):
    """How many operators of each sort and shape there are, views left out."""
    graph = without_loss(workload.operator_graph(2))
    return Counter(
        (op.kind, op.attributes.get("function"), graph.tensors[op.outputs[0]].elements)
        for op in graph.operators
        if op.kind is not OpKind.VIEW
    )


def figures(workload):
    """What the search sees of every layer: works of both passes without their names, memory, boundaries."""
    chain = workload.chain(2, 1)
    found = []
    for layer in (chain.layers[i] for i in chain.index):
        halves = [half for half in (layer.forward, layer.backward) if half is not None]
        works = joined.from_iterable(half.works for half in halves)
        done = sorted((w.unit, w.macs, w.vector_cycles, w.moved_bytes) for w in works)
        found.append((done, layer.parameters, layer.saved_bytes, layer.output_bytes))
    return found


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_read_back_is_the_same_model(tmp_path, name):
    workload = load_workload(name)
    file = saved(workload, tmp_path)
    assert file.stat().st_size < 10**6
    again = load_workload(str(file))
    assert operators(again) == operators(workload)
    assert again.parameter_count == workload.parameter_count
    assert figures(again) == figures(workload)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gpt3-small", {"attention": Attention.UNFUSED}),
        ("bert-base", {"mode": Mode.PREFILL}),
    ],
)
def test_attention_in_its_steps_and_inference_come_back(tmp_path, name, options):
    workload = load_workload(name, **options)
    again = load_workload(str(saved(workload, tmp_path)), **options)
    assert figures(again) == figures(workload)


def test_keys_and_values_that_are_kept_are_those_that_are_computed(tmp_path):
    workload = load_workload("gpt3-small", Mode.PREFILL)
    again = load_workload(str(saved(workload, tmp_path)), Mode.PREFILL)
    assert again.chain(2, 1).model_flops == workload.chain(2, 1).model_flops
    with pytest.raises(InputError, match="cache of earlier tokens"):
        to_onnx(load_workload("gpt3-small", Mode.PREFILL, sequence_length=512, context=64))


def test_a_file_that_was_read_can_be_written_again(tmp_path):
    once = load_workload(str(saved(load_workload("resnet18"), tmp_path)))
    (tmp_path / "again").mkdir()
    twice = load_workload(str(saved(once, tmp_path / "again")))
    assert figures(twice) == figures(once)


def test_the_batch_is_a_symbol_everywhere():
    graph = onnx_model(load_workload("gpt3-small")).graph
    for tensor in (graph.input[0], graph.output[0], *graph.value_info):
        if not tensor.name.startswith("embedding.position"):
            assert tensor.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert not graph.initializer


def test_a_model_of_two_towers_is_a_valid_file(tmp_path):
    saved(load_workload("clip-vit-b32"), tmp_path)


def test_what_onnx_does_not_have_is_listed_with_counts():
    with pytest.raises(
        InputError, match=r"mamba2-2\.7b cannot be written in operators of ONNX: recurrence \(64\)"
    ):
        to_onnx(load_workload("mamba2-2.7b"))
    with pytest.raises(InputError, match="over whole sequences"):
        to_onnx(load_workload("gpt3-small", Mode.DECODE))
