"""Linear attention and state-space layers: work of the rules against the same layers carried out and counted."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.workload.layers.layer_cutting import whole_context
from phaze.workload.operators.matrix_rules import forward_macs, model_flops
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.operators.rule_table import RULES
from phaze.workload.work import Unit
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

TOKENS, KEYS, VALUES, CHUNK = 24, 6, 10, 8


def operator(batch=1, tokens=TOKENS, heads=1, key_heads=1, **attributes):
    g = GraphBuilder("one")
    widths = {"q": key_heads * KEYS, "k": key_heads * KEYS, "v": heads * VALUES, "decay": heads}
    inputs = [g.input(name, (batch, tokens, width)) for name, width in widths.items()]
    sizes = {"heads": heads, "key_heads": key_heads, "key_size": KEYS, "value_size": VALUES}
    known = sizes | {"chunk": CHUNK} | attributes
    out = g.add("y", OpKind.RECURRENCE, inputs, (batch, tokens, heads * VALUES), **known)
    graph = g.build((out,))
    return graph.operators[0], whole_context(graph, training=False)


def forward(**attributes):
    op, ctx = operator(**attributes)
    return RULES[op.kind].forward(op, ctx).work


class Counted:
    """Matrix products, and the multiply-adds of all of them."""

    def __init__(self):
        self.macs = 0

    def __call__(self, a, b):
        self.macs += a.shape[0] * a.shape[1] * b.shape[1]
        return a @ b


def one_by_one(q, k, v, beta, decay, *, delta):
    """The definition: S = a S + k (b v) or, by the delta rule, S = a S + b k (v - k a S); y = q S."""
    product, state, out = Counted(), np.zeros((KEYS, VALUES)), []
    for t in range(TOKENS):
        state = decay[t] * state
        row = k[t : t + 1]
        new = beta[t] * (v[t : t + 1] - product(row, state)) if delta else beta[t] * v[t : t + 1]
        state = state + product(row.T, new)
        out.append(product(q[t : t + 1], state))
    return np.concatenate(out), product.macs


def inverse(a):
    """Inverse of I + a, strictly lower, row by row, and its multiply-adds."""
    found, macs = np.eye(len(a)), 0
    for i in range(len(a)):
        for j in range(i):
            found[i, j] = -a[i, j:i] @ found[j:i, j]
            macs += i - j
    return found, macs


def by_chunks(q, k, v, beta, decay, *, delta):
    """The same in chunks: scores inside, the state before, the state after."""
    product, triangles, state, out = Counted(), 0, np.zeros((KEYS, VALUES)), []
    for start in range(0, TOKENS, CHUNK):
        at = slice(start, start + CHUNK)
        queries, keys, values, b = q[at], k[at], v[at], beta[at, None]
        passed = np.cumprod(decay[at])[:, None]
        left = np.tril(passed / passed.T)
        if delta:
            tri, macs = inverse(np.tril(b * product(keys, keys.T) * left, -1))
            triangles += macs
            values = product(tri, b * values) - product(product(tri, b * passed * keys), state)
        else:
            values = b * values
        scores = product(queries, keys.T) * left
        out.append(product(passed * queries, state) + product(scores, values))
        state = passed[-1] * state + product((passed[-1] / passed * keys).T, values)
    return np.concatenate(out), product.macs, triangles


@pytest.mark.parametrize("delta", [False, True])
def test_chunks_do_what_tokens_do_and_the_rules_count_both(delta):
    rng = np.random.default_rng(7)
    q, k = (rng.normal(size=(TOKENS, KEYS)) / 3 for _ in "qk")
    v, beta, decay = (
        rng.normal(size=(TOKENS, VALUES)),
        rng.uniform(0.2, 1, TOKENS),
        rng.uniform(0.8, 1, TOKENS),
    )
    slow, needed = one_by_one(q, k, v, beta, decay, delta=delta)
    fast, made, triangles = by_chunks(q, k, v, beta, decay, delta=delta)
    assert np.allclose(slow, fast)
    op, ctx = operator(delta=delta)
    assert forward_macs(op, ctx) == needed
    assert model_flops(op, ctx) == 2 * needed
    work = RULES[op.kind].forward(op, ctx).work
    inverting = sum(g.macs for g in work.gemms if g.k == -(-CHUNK // 6)) if delta else 0
    assert work.macs - inverting == made
    assert triangles <= inverting <= 3 * max(triangles, 1)
    assert needed <= work.macs


def test_scores_of_the_state_space_form_are_those_of_groups():
    work = forward(batch=2, heads=4, key_heads=2)
    assert [g.groups for g in work.gemms] == [2 * 2 * 3, *(2 * 4 * 3,) * 3]


def test_one_token_moves_the_state_twice_and_multiplies_nothing():
    work = forward(batch=3, tokens=1, heads=4, kept=True, older=True, delta=True)
    state = 3 * 4 * KEYS * VALUES
    assert work.unit is Unit.VECTOR
    assert work.gemms == ()
    assert work.of_cache
    assert work.vector_cycles == 4 * state
    assert work.stream_bytes == 2 * 4 * state + 2 * 3 * (2 * KEYS + 4 * (2 * VALUES + 1))


def test_a_first_pass_writes_the_state_alone_and_training_has_none():
    moved = [forward(kept=kept, older=older).stream_bytes for kept, older in ((0, 0), (1, 0), (1, 1))]
    assert moved[1] - moved[0] == moved[2] - moved[1] == 4 * KEYS * VALUES


def test_backward_is_forward_again_and_two_products_for_each():
    g = GraphBuilder("one")
    x = g.input("x", (1, TOKENS, 1))
    made = [
        g.add(f"{n}", OpKind.MATMUL, (x, g.parameter(f"w{n}", (1, w))), (1, TOKENS, w))
        for n, w in enumerate((KEYS, KEYS, VALUES, 1))
    ]
    out = g.add(
        "y", OpKind.RECURRENCE, made, (1, TOKENS, VALUES), key_size=KEYS, value_size=VALUES, chunk=CHUNK
    )
    graph = g.build((out,))
    ctx, op = whole_context(graph, training=True), graph.operators[-1]
    ahead = RULES[op.kind].forward(op, ctx).work
    (back,) = RULES[op.kind].backward(op, ctx, {"y": "d.y"})
    assert back.work.macs == 3 * ahead.macs
    assert model_flops(op, ctx) == 3 * 2 * forward_macs(op, ctx)
    assert set(back.writes) == {f"d.{n}@y" for n in range(4)}


STATES = {
    # bytes in memory of a sequence, whatever its length, and of every token of its context
    "qwen3-next-80b-a3b": (36 * (4 * 32 * 128 * 128 + 2 * 3 * 8192), 12 * 2 * 2 * 256 * 2),
    "nemotron-h-8b": (24 * (4 * 128 * 64 * 128 + 2 * 3 * (8192 + 2 * 8 * 128)), 4 * 2 * 8 * 128 * 2),
    "jamba-mini": (28 * (4 * 8192 * 16 + 2 * 3 * 8192), 4 * 2 * 8 * 128 * 2),
    "mamba2-2.7b": (64 * (4 * 80 * 64 * 128 + 2 * 3 * (5120 + 2 * 128)), 0),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("context", [100, 4000])
def test_memory_of_a_sequence(name, context):
    chain = load_workload(name, Mode.DECODE, context=context).chain(2, 1)
    state, token = STATES[name]
    assert sum(chain.layers[i].cache_bytes for i in chain.index) == 2 * (state + token * (context + 1))


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "granite-4.0-h-small", "jamba-mini", "falcon-h1-34b"])
def test_heads_are_divided(name):
    model = load_workload(name, Mode.TRAINING, sequence_length=512)
    whole, part = model.chain(1, 1), model.chain(1, 4)
    for one, other in zip(whole.layers, part.layers, strict=True):
        assert one.model_flops == other.model_flops
        made, shared = ([w for w in layer.forward.works if w.kind == "recurrence"] for layer in (one, other))
        for a, b in zip(made, shared, strict=True):
            assert 4 * b.vector_cycles == pytest.approx(a.vector_cycles)
            assert a.macs <= 4 * b.macs <= 1.2 * a.macs  # one group may be there on every device


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "mamba2-2.7b"])
def test_a_token_of_decode_is_a_token_of_prefill_with_states(name):
    """Model FLOPs without attention are proportional to tokens: nothing depends on the context."""
    flops = [
        load_workload(name, Mode.PREFILL, sequence_length=n).chain(1, 1).model_flops for n in (64, 128, 256)
    ]
    if name == "mamba2-2.7b":
        assert flops[2] == 2 * flops[1] == 4 * flops[0]
    assert flops[2] - flops[1] >= 2 * (flops[1] - flops[0])
