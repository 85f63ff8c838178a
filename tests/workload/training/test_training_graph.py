"""Edges of the backward pass, gradients of parameters, the optimizer step, and training in fp32."""

import networkx as nx
import pytest

from phaze.workload.fusion_rules import NO_FUSION
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.training.training_numerics import Optimizer, Precision, numerics
from phaze.workload.work import Format
from phaze.workload.workload import Attention, Mode, Numerics
from phaze.workload.workload_file import read_spec
from phaze.workload.workload_library import find_workload
from phaze.workload.workload_loader import LoadOptions, load_workload, workload_of

FAMILIES = ("bloom-176b", "bert-base", "llama3-8b", "t5-11b", "mixtral-8x7b", "deepseek-v2", "vit-b16")


def order(pass_):
    graph = nx.DiGraph(pass_.edges)
    graph.add_nodes_from(range(len(pass_.works)))
    return graph


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("sharding", [Sharding(), Sharding(2, sequence=True)])
def test_both_gradients_of_a_product_may_run_at_once(name, sharding):
    """No path from dX to dW nor back; nothing waits for dW."""
    pairs = 0
    for layer in load_workload(name).chain(1, sharding).layers:
        place = {w.name.split("+")[0]: i for i, w in enumerate(layer.backward.works)}
        graph = order(layer.backward)
        for weight in (w for w in place if w.endswith(".dW") and layer.backward.works[place[w]].gemms):
            d_w, d_x = place[weight], place.get(weight.removesuffix("dW") + "dX")
            assert not nx.descendants(graph, d_w)
            if d_x is not None:
                pairs += 1
                assert d_w not in nx.descendants(graph, d_x)
    assert pairs >= 4


@pytest.mark.parametrize("name", FAMILIES)
def test_every_microbatch_adds_to_fp32_gradients(name):
    """Matrices of products: each element is read and written once, four bytes each time, whatever the batch."""
    workload = load_workload(name)
    for batch in (1, 2):
        chain = workload.chain(batch, 1)
        for layer in chain.layers:
            weights = [w for w in layer.backward.works if w.name.split("+")[0].endswith(".dW") and w.gemms]
            forward = {w.name.split("+")[0]: w for w in layer.forward.works}
            for work in weights:
                gradient, product = (
                    work.gemms[0],
                    forward[work.name.split("+")[0].removesuffix(".dW")].gemms[0],
                )
                assert gradient.c_bytes == 4 * product.b_bytes / 2
                assert work.stream_bytes == gradient.c_bytes


FP32_ADAM = Numerics(16, 4, 12 + 16, numerics(Optimizer.ADAM, Mode.TRAINING).optimizer_vector_cycles - 1, 4)


def test_optimizers_in_mixed_precision_and_in_fp32():
    """ZeRO, arXiv 1910.02054, section 3.1; in fp32 the weight is its own master copy and is not rounded."""
    mixed = {o: numerics(o, Mode.TRAINING, Precision.FP16) for o in Optimizer}
    assert [mixed[o].state_bytes for o in (Optimizer.ADAM, Optimizer.MOMENTUM, Optimizer.SGD)] == [18, 14, 10]
    traffic = [mixed[o].optimizer_traffic_bytes for o in (Optimizer.ADAM, Optimizer.MOMENTUM, Optimizer.SGD)]
    assert traffic == [16 + 14, 12 + 10, 8 + 6]
    assert numerics(Optimizer.ADAM, Mode.TRAINING, Precision.FP32) == FP32_ADAM
    assert numerics(Optimizer.SGD, Mode.TRAINING, Precision.FP32) == Numerics(8, 4, 8 + 4, 1, 4)
    assert numerics(Optimizer.ADAM, Mode.PREFILL, Precision.FP32) == Numerics(4, 0, 0, 0, 4)


@pytest.fixture
def path(tmp_path):
    """The smallest GPT-3 in fp32."""
    text = find_workload("gpt3-small").read_text(encoding="utf-8")
    path = tmp_path / "wide.yaml"
    path.write_text(text.replace("precision: bf16", "precision: fp32"), encoding="utf-8")
    return path


def test_flash_attention_in_fp32(path):
    """Operands of the products inside the kernel double, accumulators and row sums are fp32 anyway."""
    half, wide = (
        next(w for w in load_workload(source).chain(1, 1).layers[1].forward.works if w.kind == "attention")
        for source in ("gpt3-small", str(path))
    )
    assert [g.b_bytes for g in wide.gemms] == [2 * g.b_bytes for g in half.gemms]
    assert wide.reread_bytes == 2 * half.reread_bytes
    assert wide.reread_rows_bytes == half.reread_rows_bytes * (4 + 4) / (2 + 4)


def test_training_in_fp32(path):
    """Weights, activations and collectives double; masks (1 byte) and gradients (fp32 anyway) do not."""
    spec = read_spec(path)
    vector, scores = (
        spec.sequence_length * spec.dimensions.hidden,
        spec.dimensions.heads * spec.sequence_length**2,
    )
    half, wide = (
        load_workload(source, attention=Attention.UNFUSED, fusion=NO_FUSION)
        for source in ("gpt3-small", str(path))
    )
    assert wide.numerics == FP32_ADAM
    kept = [x.saved_bytes for x in wide.chain(1, 1).layers if x.kind in ("block.attention", "block.mlp")]
    assert sum(kept) == 4 * (16 * vector + 2 * scores) + 2 * vector + scores
    for one, other in zip(half.chain(1, 2).layers, wide.chain(1, 2).layers, strict=True):
        assert other.output_bytes == 2 * one.output_bytes or one.kind == "loss"
        assert other.model_flops == one.model_flops
        for before, after in zip(one.forward.works, other.forward.works, strict=True):
            assert [g.a_bytes for g in after.gemms] == [2 * g.a_bytes for g in before.gemms]
            if after.link and after.link.payload_bytes != 12 * spec.sequence_length:
                assert after.link.payload_bytes == 2 * before.link.payload_bytes
        for before, after in zip(one.backward.works, other.backward.works, strict=True):
            if after.name.endswith(".dW"):
                assert [g.c_bytes for g in after.gemms] == [g.c_bytes for g in before.gemms]


def test_precision_decides_bytes_and_the_format_of_products():
    def products(precision):
        content = {
            "schema_version": 1,
            "name": "small",
            "family": "decoder",
            "source": {"dimensions": "test"},
            "dimensions": {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 64, "max_positions": 16},
            "sequence_length": 16,
            "precision": precision,
        }
        workload = workload_of(content, "small", LoadOptions(attention=Attention.UNFUSED))
        layers = workload.chain(1, 1).layers
        passes = [p for layer in layers for p in (layer.forward, layer.backward)]
        return [gemm for p in passes for work in p.works for gemm in work.gemms]

    half, tf32, fp32 = (products(name) for name in ("bf16", "tf32", "fp32"))
    assert {gemm.operands for gemm in half} == {None}
    assert {gemm.operands for gemm in tf32} == {Format.TF32}
    assert {gemm.operands for gemm in fp32} == {Format.FP32}
    assert [2 * gemm.a_bytes for gemm in half] == [gemm.a_bytes for gemm in fp32]
    assert [gemm.a_bytes for gemm in tf32] == [gemm.a_bytes for gemm in fp32]
