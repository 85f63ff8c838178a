"""Flex attention of PyTorch: one kernel, of which the functions say what it sees."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

from phaze import from_torch  # noqa: E402
from phaze.workload.operators.operator_graph import OpKind  # noqa: E402
from phaze.workload.workload import Mode  # noqa: E402

HEADS, GROUPS, SIZE, TOKENS = 4, 2, 16, 96


class Block(torch.nn.Module):
    """Attention with grouped heads, between two products."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.qkv = torch.nn.Linear(HEADS * SIZE, (HEADS + 2 * GROUPS) * SIZE)
        self.out = torch.nn.Linear(HEADS * SIZE, HEADS * SIZE)

    def forward(self, x):
        batch, tokens, _ = x.shape
        rows = self.qkv(x).view(batch, tokens, HEADS + 2 * GROUPS, SIZE).transpose(1, 2)
        q, k, v = rows.split((HEADS, GROUPS, GROUPS), 1)
        y = self.attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, -1))


def block_of(rule):
    return flex.create_block_mask(rule, None, None, TOKENS, TOKENS, device="cpu")


def masked(rule):
    """Attention under a mask that is made as the module runs."""

    def attention(q, k, v):
        mask = flex.create_block_mask(rule, None, None, TOKENS, TOKENS, device=q.device)
        return flex.flex_attention(q, k, v, block_mask=mask, enable_gqa=True)

    return attention


def ordered(score, b, h, i, j):
    return torch.where(i >= j, score, -float("inf"))


def placed(score, b, h, i, j):
    return score + (j - i)


CASES = {
    "all": (lambda q, k, v: flex.flex_attention(q, k, v, enable_gqa=True), {}),
    "order as a mask": (masked(lambda b, h, i, j: i >= j), {"causal": True}),
    "order as scores": (
        lambda q, k, v: flex.flex_attention(q, k, v, ordered, enable_gqa=True),
        {"causal": True},
    ),
    "window": (masked(lambda b, h, i, j: (i >= j) & (i - j < 24)), {"causal": True, "window": 24}),
    "distances": (
        lambda q, k, v: flex.flex_attention(q, k, v, placed, enable_gqa=True),
        {"score_bias": True},
    ),
    "another shape": (masked(lambda b, h, i, j: (i - j) % 2 == 0), {}),
}


def kernel(attention, device, **options):
    """The one attention of a block."""
    with torch.device(device):
        module, x = Block(attention), torch.zeros(1, TOKENS, HEADS * SIZE)
    graph = from_torch(module, (x,), **options).operator_graph(1)
    (found,) = (op for op in graph.operators if op.kind is OpKind.ATTENTION)
    return found


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", CASES)
def test_functions_say_what_queries_see(case, device):
    attention, told = CASES[case]
    found = kernel(attention, device)
    expected = {"causal": False, "heads": HEADS, "kv_heads": GROUPS, "head_size": SIZE} | told
    assert {key: found.attributes[key] for key in expected} == expected
    assert {"window", "score_bias"} & found.attributes.keys() == {"window", "score_bias"} & told.keys()


def test_a_mask_made_before_and_inference():
    mask = block_of(lambda b, h, i, j: i >= j)
    found = kernel(
        lambda q, k, v: flex.flex_attention(q, k, v, None, mask, enable_gqa=True), "cpu", mode=Mode.PREFILL
    )
    assert found.attributes["causal"] is True


def test_a_compiled_one_is_recorded_and_torch_is_left_as_it_was():
    compiled = torch.compile(flex.flex_attention)
    found = kernel(lambda q, k, v: compiled(q, k, v, score_mod=ordered, enable_gqa=True), "meta")
    assert found.attributes["causal"] is True
    x = torch.zeros(1, 2, 8, 16)
    with torch.no_grad(), pytest.raises(ValueError, match="heads"):
        flex.flex_attention(x, x[:, :1], x[:, :1])


def test_more_results_are_handed_out():
    def attention(q, k, v):
        y, aux = flex.flex_attention(q, k, v, enable_gqa=True, return_aux=flex.AuxRequest(lse=True))
        return y * aux.lse.unsqueeze(-1)

    assert kernel(attention, "meta").attributes["heads"] == HEADS
