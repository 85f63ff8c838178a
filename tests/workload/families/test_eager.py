"""Models as a framework runs them that launches operators one by one."""

from collections import Counter

from phaze.workload.families.decoder_family import Decoder
from phaze.workload.families.model_family import Extent
from phaze.workload.fusion_rules import EAGER_FUSION, NO_FUSION
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.training.training_numerics import Precision
from phaze.workload.workload import Attention, Mode

TOKENS, HIDDEN, HEADS = 16, 32, 4
SCORES = 4.0 * HEADS * TOKENS**2  # bytes of one sequence's scores in fp32
STREAM = 4.0 * HIDDEN * TOKENS


class Model:
    """One block of GPT-2."""

    name, heads = "small", HEADS

    def __init__(self, attention, **more):
        self.attention = attention
        sizes = {"layers": 1, "hidden": HIDDEN, "heads": HEADS, "vocabulary": 64, "max_positions": TOKENS}
        self.dimensions = Decoder(**sizes, **more)

    def graph(self, batch):
        return self.dimensions.graph(self.name, Extent(batch, TOKENS), self.attention)


def works(attention, mode=Mode.PREFILL, fusion=NO_FUSION, **more):
    chain = GraphWorkload(Model(attention, **more), mode, fusion=fusion, precision=Precision.FP32).chain(1, 1)
    layers = [chain.layers[i] for i in chain.index]
    passes = [p for layer in layers for p in (layer.forward, layer.backward) if p is not None]
    return [work for p in passes for work in p.works]


def more_than(some, others):
    """Names of works that others lack, and the bytes they move."""
    left = Counter(w.name for w in some) - Counter(w.name for w in others)
    return {name: w.moved_bytes for name in left for w in some if w.name == name}


def test_eager_attention_copies_heads_and_masks_after_the_scale():
    found = more_than(works(Attention.EAGER), works(Attention.UNFUSED))
    assert sorted(found) == ["k_heads.copy", "mask", "mix_copy", "q_heads.copy", "v_heads.copy"]
    assert found.pop("mask") == 2 * SCORES
    assert set(found.values()) == {2 * STREAM}


def test_eager_gradients_take_several_kernels():
    """Softmax: 6 tensors in place of 3. Dropout: a mask, and 6 for 2 and a mask. Norm: everything is read again."""
    dropout = {"dropout": 0.1, "attention_dropout": 0.1}
    eager, unfused = (works(kind, Mode.TRAINING, **dropout) for kind in (Attention.EAGER, Attention.UNFUSED))

    def moved(some, start):
        return sum(w.moved_bytes for w in some if w.name.startswith(start))

    assert moved(eager, "softmax.d") - moved(unfused, "softmax.d") == 3 * SCORES
    assert moved(eager, "softmax_dropout.") == (1 / 4 + 1 + 2 + 3) * SCORES
    assert moved(unfused, "softmax_dropout.") == (1 / 4 + 2) * SCORES
    assert moved(eager, "norm.dW") == 3 * 2 * STREAM
    assert not moved(unfused, "norm.dW")


def test_gelu_written_out_is_eight_kernels_over_the_wide_tensor():
    found = more_than(
        works(Attention.EAGER, activation="gelu_new"), works(Attention.EAGER, activation="gelu_tanh")
    )
    assert len(found) == 8
    assert sorted(found.values()) == [8 * STREAM] * 6 + [12 * STREAM] * 2  # two of them read two tensors


def test_a_bias_rides_on_its_product_alone():
    plain, eager = (works(Attention.EAGER, fusion=fusion) for fusion in (NO_FUSION, EAGER_FUSION))
    biased = ("qkv", "projection", "up", "down")
    assert set(more_than(eager, plain)) == {f"{where}+add_bias" for where in biased}
    assert len(plain) - len(eager) == 4
