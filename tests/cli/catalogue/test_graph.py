"""`dse graph` and `dse workloads show` on the command line."""

from __future__ import annotations

import json
import re

import pytest

from phaze.errors import InputError
from phaze.report.exports.chakra_trace import COLLECTIVE, COMPUTE, read_chakra, to_chakra, trace_nodes
from phaze.workload.workload_loader import load_workload


@pytest.fixture
def onnx_file(tmp_path):
    from onnx import TensorProto, helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, 8, 8))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 6, 6))
    weight = helper.make_tensor("weight", TensorProto.FLOAT, (4, 3, 3, 3), [0.0] * 108)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "weight"], ["y"])], "g", [image], [result], [weight]
    )
    path = tmp_path / "tiny.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    return path


def test_show_prints_figures_and_the_file_on_request(dse):
    code, out, _ = dse("workloads", "show", "resnet18")
    assert code == 0
    assert "11,689,512" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "source:" in dse("workloads", "show", "resnet18", "--yaml")[1]


@pytest.mark.parametrize("mode", ["training", "prefill"])
def test_show_as_json(dse, mode):
    document = json.loads(
        dse("workloads", "show", "resnet18", "--mode", mode, "--microbatch", 2, "--json")[1]
    )
    assert document["parameters"] == 11_689_512
    assert (document["mode"], document["microbatch_size"]) == (mode, 2)
    assert sum(kind["flops"] for kind in document["operator_kinds"].values()) == document["flops"]
    assert sum(kind["flops"] for kind in document["layer_kinds"].values()) == document["flops"]


def test_an_execution_trace_has_every_operator_and_collective(dse, tmp_path):
    file = tmp_path / "gpt2-xl.0.et"
    assert dse("graph", "gpt2-xl", "--tensor-parallel", 5, "--format", "chakra", "--out", file)[0] == 0
    chain = load_workload("gpt2-xl").chain(1, 5)
    works = [
        w
        for i in chain.index
        for half in (chain.layers[i].forward, chain.layers[i].backward)
        for w in half.works
    ]
    nodes = read_chakra(file.read_bytes(), str(file))
    computed = [n for n in nodes if n.kind == COMPUTE]
    links = [w.link for w in works if w.link]
    assert len(nodes) == len(works)
    assert sum(n.attributes["num_ops"] for n in computed) == sum(
        round(2 * w.macs + w.vector_cycles) for w in works if not w.link
    )
    assert sum(n.attributes["tensor_size"] for n in computed) == sum(
        round(w.moved_bytes) for w in works if not w.link
    )
    assert [n.attributes["comm_size"] for n in nodes if n.kind == COLLECTIVE] == [
        round(link.payload_bytes) for link in in_order(chain)
    ]
    assert len(links) == len([n for n in nodes if n.kind == COLLECTIVE])
    assert all(waits < node.id for node in nodes for waits in node.after)
    assert [node.id for node in nodes if not node.after] == [0]


def in_order(chain):
    """Collectives as they run: forward, then backward."""
    layers = [chain.layers[i] for i in chain.index]
    halves = [layer.forward for layer in layers] + [layer.backward for layer in reversed(layers)]
    return [w.link for half in halves for w in half.works if w.link]


@pytest.mark.parametrize(
    ("options", "said"), [(["--out", "t.et", "--layer", "1"], "of the whole model"), ([], "--out FILE.et")]
)
def test_an_execution_trace_is_of_a_model_and_in_a_file(dse, options, said):
    code, _, err = dse("graph", "resnet18", "--format", "chakra", *options)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("data", [b"\x05ab", b"\x01\x0a\xff\xff\xff", b"\x00\x04\x08\x01\x28\x07"])
def test_what_is_no_trace_is_refused_in_a_sentence(data):
    with pytest.raises(InputError, match=r"t\.et: "):
        read_chakra(data, "t.et")


def test_a_trace_is_one_that_protobuf_reads():
    """The second implementation: messages declared to the protobuf library, numbers as the schema has them."""
    message = trace_message()
    chain = load_workload("resnet18").chain(2, 1)
    data, nodes = to_chakra(chain), trace_nodes(chain)
    theirs = [message.FromString(part) for part in [*delimited(data)][1:]]
    assert [(n.id, n.name, n.type, tuple(n.data_deps)) for n in theirs] == [
        (n.id, n.name, n.kind, n.after) for n in nodes
    ]
    assert [
        {a.name: a.int64_val or a.uint64_val for a in n.attr if a.name in n_.attributes}
        for n, n_ in zip(theirs, nodes, strict=True)
    ] == [{k: int(v) for k, v in n.attributes.items()} for n in nodes]
    assert read_chakra(data, "r") == nodes


def trace_message():
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")

    def declare(name, *fields):
        made = file.message_type.add(name=name)
        for called, number, kind, label, of in fields:
            made.field.add(name=called, number=number, type=kind, label=label, type_name=of)

    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    declare(
        "Attribute",
        ("name", 1, kinds.TYPE_STRING, one, None),
        ("int64_val", 9, kinds.TYPE_INT64, one, None),
        ("uint64_val", 13, kinds.TYPE_UINT64, one, None),
        ("bool_val", 27, kinds.TYPE_BOOL, one, None),
    )
    declare(
        "Node",
        ("id", 1, kinds.TYPE_UINT64, one, None),
        ("name", 2, kinds.TYPE_STRING, one, None),
        ("type", 3, kinds.TYPE_INT32, one, None),
        ("data_deps", 5, kinds.TYPE_UINT64, many, None),
        ("attr", 10, kinds.TYPE_MESSAGE, many, ".t.Attribute"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Node"))


def delimited(data):
    """Messages, each after its length."""
    while data:
        size = shift = 0
        while True:
            byte, data = data[0], data[1:]
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield data[:size]
        data = data[size:]


def test_onnx_files_are_shown_and_drawn(dse, onnx_file):
    document = json.loads(dse("workloads", "show", onnx_file, "--mode", "prefill", "--json")[1])
    assert (document["parameters"], document["flops"]) == (108, 2 * 4 * 36 * 27)
    assert json.loads(dse("graph", onnx_file, "--format", "json")[1])["workload"] == "tiny"


@pytest.mark.parametrize(
    ("format_", "start"), [("text", "resnet18, training"), ("dot", "digraph"), ("mermaid", "flowchart TD")]
)
def test_a_model_in_every_format(dse, format_, start):
    code, out, err = dse("graph", "resnet18", "--format", format_)
    assert (code, err) == (0, "")
    assert out.startswith(start)


def test_a_drawing_goes_into_a_file(dse, tmp_path):
    path = tmp_path / "layer.json"
    assert dse("graph", "bert-large", "--layer", 3, "--format", "json", "--out", path) == (
        0,
        "",
        f"graph: {path}\n",
    )
    assert json.loads(path.read_text(encoding="utf-8"))["layer"] == "block0.attention"


def test_collectives_appear_with_tensor_parallelism(dse):
    options = ("--layer", "block0.mlp", "--format", "json")
    kinds = [
        {node["kind"] for node in json.loads(dse("graph", "bert-large", *options, *more)[1])["nodes"]}
        for more in ((), ("--tensor-parallel", 4))
    ]
    assert kinds[1] - kinds[0] == {"all_reduce"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet18", "--layer", "basik1"), "--layer 'basik1': resnet18 has layers 1 to 14; nearest: basic1"),
        (("resnet18", "--tensor-parallel", 2), "--tensor-parallel 2 does not divide this workload"),
        (("resnet18", "--format", "png"), "--format 'png' is not known"),
        (("resnet1"), "unknown workload"),
        (("resnet18", "--out", "/nowhere/x.dot"), "cannot write"),
    ],
)
def test_wrong_requests_are_one_sentence(dse, arguments, message):
    code, out, err = dse("graph", *([arguments] if isinstance(arguments, str) else arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_onnx_file_of_a_workload_is_read_as_that_workload(dse, tmp_path):
    file = tmp_path / "resnet18.onnx"
    assert dse("graph", "resnet18", "--format", "onnx", "--out", file)[0] == 0
    assert load_workload(str(file)).parameter_count == 11_689_512
    for more, told in (
        (("--layer", 2, "--out", file), "without --layer"),
        ((), "say where with --out FILE.onnx"),
        (("--mode", "decode", "--out", file), "no key-value cache|over whole sequences|decode"),
    ):
        code, _, err = dse("graph", "resnet18", "--format", "onnx", *more)
        assert code == 2
        assert re.search(told, err)
