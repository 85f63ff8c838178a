"""Weights are not loaded, wherever they are: huge files import in the memory of their nodes."""

import os
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx_tiny import light, model, node, save, tensor

from phaze.errors import InputError
from phaze.workload.onnx import load_onnx
from phaze.workload.onnx.weightless_message import parse_model

GIGABYTE = 10**9


def external(name, dims, location, **entries):
    """A tensor whose content lies in another file."""
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    made.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        made.external_data.add(key=key, value=str(value))
    return made


def product(folder, weight):
    """A model that multiplies by a weight, written to a folder."""
    nodes, inputs = [node("MatMul", ["x", weight.name], ["y"])], [tensor("x", 1, weight.dims[0])]
    return save(folder, nodes, inputs, [weight])


def peak_bytes(work):
    """Result of some work and the most memory it had at a time."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_100_gigabytes_of_external_data_are_not_read(tmp_path):
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(100 * GIGABYTE)  # sparse: takes no space
    path = product(tmp_path, external("w", [50_000, 500_000], "weights.bin", length=100 * GIGABYTE))
    graph, peak = peak_bytes(lambda: load_onnx(path).graph(2))
    assert graph.tensors["w"].elements == 25 * GIGABYTE
    assert peak < 5e6


def test_weights_inside_the_file_are_skipped_even_beyond_the_limit_of_protobuf(tmp_path):
    """A file with 6 GB of raw data, in its middle nothing but a hole."""
    raw = 6 * GIGABYTE
    mark = b"\x4a\x00"  # field 9 of a tensor, raw data, still empty
    small = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[30_000, 50_000], raw_data=b"")
    whole = model([node("MatMul", ["x", "w"], ["y"])], [tensor("x", 1, 30_000)])
    head = small.SerializeToString().replace(mark, b"")
    weight = head + b"\x4a" + varint(raw)
    rest = whole.graph.SerializeToString()
    initializer = b"\x2a" + varint(len(weight) + raw) + weight
    whole.ClearField("graph")
    path = tmp_path / "inline.onnx"
    with path.open("wb") as file:
        file.write(whole.SerializeToString())
        file.write(b"\x3a" + varint(len(rest) + len(initializer) + raw) + rest + initializer)
        file.truncate(file.tell() + raw)
    graph, peak = peak_bytes(lambda: load_onnx(path).graph(2))
    assert graph.tensors["y"].shape == (2, 50_000)
    assert graph.tensors["w"].elements * 4 == raw
    assert peak < 5e6


def varint(value):
    made = b""
    while value > 127:
        made, value = made + bytes([value & 127 | 128]), value >> 7
    return made + bytes([value])


@pytest.mark.parametrize("name", ["bvlc_alexnet", "densenet121", "inception_v2", "shufflenet"])
def test_a_thinned_model_differs_only_in_the_content_of_long_tensors(name):
    whole, thin = onnx.load(light(name)), parse_model(light(name))
    assert list(thin.graph.node) == list(whole.graph.node)
    for before, after in zip(whole.graph.initializer, thin.graph.initializer, strict=True):
        assert (after.name, after.dims, after.data_type) == (before.name, before.dims, before.data_type)
        assert after == before or after.data_location == TensorProto.EXTERNAL


def test_what_is_left_out_of_a_file_is_a_reference_into_it(tmp_path):
    numbers = np.arange(3000, dtype=np.float32).reshape(30, 100)
    path = product(tmp_path, numpy_helper.from_array(numbers, "w"))
    (thin,) = parse_model(path).graph.initializer
    assert not thin.raw_data
    assert np.array_equal(numpy_helper.to_array(thin, base_dir=str(tmp_path)), numbers)


@pytest.mark.parametrize("location", ["../w.bin", "/tmp/w.bin", "a/../../w.bin", "C:\\w.bin", "w\0.bin"])
def test_external_data_outside_the_folder_is_refused(tmp_path, location):
    path = product(tmp_path, external("w", [4, 4], location))
    with pytest.raises(InputError, match=r"external data of 'w' would lie outside the model's folder: '"):
        load_onnx(path)


def test_external_data_behind_a_link_is_refused_unless_the_model_lies_there_too(tmp_path):
    store, folder = tmp_path / "store", tmp_path / "snapshot"
    store.mkdir()
    folder.mkdir()
    (store / "blob").write_bytes(bytes(64))
    (folder / "w.bin").symlink_to(store / "blob")
    path = product(folder, external("w", [4, 4], "w.bin"))
    with pytest.raises(InputError, match=r"outside the model's folder: 'w\.bin'"):
        load_onnx(path)
    path.replace(store / "model")
    path.symlink_to(store / "model")
    assert load_onnx(path).graph(1).tensors["w"].shape == (4, 4)


@pytest.mark.parametrize("where", ["inside", "beside"])
def test_a_mask_is_known_by_its_numbers_wherever_they_are(tmp_path, where):
    lowest = np.triu(np.full((1, 64, 64), -1e9, np.float32), 1)
    mask = numpy_helper.from_array(lowest, "mask")
    if where == "beside":
        (tmp_path / "mask.bin").write_bytes(b"head" + lowest.tobytes())
        mask = external("mask", [1, 64, 64], "mask.bin", offset=4, length=lowest.nbytes)
    path = save(tmp_path, [node("Add", ["x", "mask"], ["y"])], [tensor("x", 1, 64, 64)], [mask])
    assert load_onnx(path).graph(1).parameters() == ()


def test_a_pipe_beside_the_model_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "mask.bin")
    mask = external("mask", [1, 64, 64], "mask.bin", length=64 * 64 * 4)
    path = save(tmp_path, [node("Add", ["x", "mask"], ["y"])], [tensor("x", 1, 64, 64)], [mask])
    assert load_onnx(path).graph(1).tensors["mask"].shape == (1, 64, 64)


@pytest.mark.parametrize(
    "content",
    [b"\x08" * 9, b"\x3a\xff\xff\x7f", b"\x08\x01" * 3 + b"\x0b", b"\x00\x01", b"\x3a" + b"\xff" * 11],
)
def test_damaged_messages(tmp_path, content):
    path = tmp_path / "damaged.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a readable ONNX model"):
        load_onnx(path)


def test_a_file_of_nothing_but_fields_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("phaze.workload.onnx.weightless_message.MOST_FIELDS", 1000)
    path = tmp_path / "endless.onnx"
    path.write_bytes(b"\x08\x01" * 1001)
    with pytest.raises(InputError, match="not a readable ONNX model"):
        load_onnx(path)
