"""Guessed tokens: the published formula, passes of a request by enumeration and by drawing, and their cost."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_cases import DECODER, batches, served, space

from phaze.errors import InputError
from phaze.parallel.serving import Traffic, best_of
from phaze.parallel.serving.load.speculation import Speculation
from phaze.parallel.serving.replicas.steady_state import Cycle
from phaze.parallel.serving.request_simulation import Engine, Requests, simulate

TRAFFIC = Traffic(256, 64)


@given(st.integers(1, 8), st.floats(0, 0.99))
def test_tokens_of_a_pass_are_as_published(tokens, chance):
    found = Speculation(tokens, chance)
    assert found.tokens_per_pass == pytest.approx((1 - chance ** (tokens + 1)) / (1 - chance))
    assert found.chances.sum() == pytest.approx(1)
    again = Speculation.of_length(tokens, found.tokens_per_pass)
    assert again.tokens_per_pass == pytest.approx(found.tokens_per_pass)


def test_passes_by_enumeration():
    """All ways in which passes of two guesses make five tokens."""
    guessed, mean = Speculation(2, 0.6), 0.0
    for made in product(range(3), repeat=5):
        chance, tokens, passes = 1.0, 0, 0
        for accepted in made:
            chance *= guessed.chances[accepted]
            if tokens < 5:
                tokens, passes = tokens + accepted + 1, passes + 1
        mean += chance * passes
    assert guessed.passes(5) == pytest.approx(mean)


def test_passes_at_the_ends():
    assert Speculation(3, 1.0).passes(9) == 3  # 4, 4, and the last one
    assert Speculation(3, 0.0).passes(9) == 9
    drawn = Speculation(4, 0.7).drawn(np.full(20_000, 100), np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(Speculation(4, 0.7).passes(100), rel=0.002)


@pytest.mark.parametrize(
    ("values", "said"),
    [((0, 0.5), "draft tokens are 0"), ((33, 0.5), "1 to 32"), ((3, 1.5), "acceptance is 1.5")],
)
def test_refusals(values, said):
    with pytest.raises(InputError, match=said):
        Speculation(*values)


def test_a_length_that_is_not_possible():
    with pytest.raises(InputError, match="makes 1 to 4"):
        Speculation.of_length(3, 4.5)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    small = DECODER.replace("layers: 5", "layers: 2").replace("hidden: 1024", "hidden: 256")
    (folder / "draft.yaml").write_text(small.replace("heads: 8", "heads: 4").replace("4096,\n", "512,\n"))
    return served(folder), str(folder / "draft.yaml")


def made(models, draft, tokens=3, chance=0.7, **more):
    guessed = Speculation(tokens, chance, models[1] if draft else None)
    return space(models[0], traffic=TRAFFIC, largest_batch=64, speculation=guessed, **more)


def test_a_pass_by_hand(models):
    """Verifying guesses is a pass with four tokens of each sequence; the draft makes three before it."""
    plain = space(models[0], traffic=TRAFFIC, largest_batch=64).replica(1, 1)
    none, drafted = made(models, False).replica(1, 1), made(models, True).replica(1, 1)
    body = float(plain.grid.tokens.at(40.0)[:, 0].sum())
    verified = float(none.pass_costs(10, 280.0)[0, 0])
    assert verified - float(none._decode(np.array(10.0), 280.0)[0, 0]) == pytest.approx(body)
    assert verified > float(plain.pass_costs(10, 280.0)[0, 0])
    guess = float(drafted.draft.pass_costs(10, 280.0)[0, 0])
    assert float(drafted.pass_costs(10, 280.0)[0, 0]) == pytest.approx(verified + 3 * guess)
    cycle = Cycle(none, TRAFFIC, batches(10))
    middle = float(none.pass_costs(10, TRAFFIC.mean_context)[0, 0])
    assert cycle.tpot_s[0] == pytest.approx(middle * Speculation(3, 0.7).passes(63) / 63)


def test_a_draft_takes_memory(models):
    none, drafted = (made(models, draft).replica(1, 1) for draft in (False, True))
    with_it, without = (Cycle(one, TRAFFIC, batches(8)).memory(batches(8)) for one in (drafted, none))
    assert with_it.weight_bytes[0] - without.weight_bytes[0] == drafted.draft.grid.weight_bytes.sum()
    assert with_it.cache_bytes[0] > without.cache_bytes[0]


@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_full_batches_against_the_simulator(models, draft, beside):
    asked, b, count = made(models, draft), 10, 500
    one = asked.replica(1, 1)
    cycle = asked.cycle(one, 128 if beside else None)
    ran = simulate(
        Engine(one, cycle.chunks, beside, b), Requests(np.zeros(count), np.full(count, 64)), 256, seed=1
    )
    ends, steady = np.sort(ran.last_s), slice(count // 4, 3 * count // 4)
    rate = (count // 2) / (ends[3 * count // 4] - ends[count // 4])
    told = Cycle(one, TRAFFIC, batches(ran.busy_places), cycle.chunks, beside)
    assert told.requests_per_s[0] == pytest.approx(rate, rel=0.04)
    assert told.tpot_s[0] == pytest.approx(ran.tpot_s[steady].mean(), rel=0.06)


def test_certain_guesses_without_a_draft_make_tokens_faster(models):
    """Where nothing is ever accepted they only cost; where all are, a pass makes four tokens."""
    plain = best_of(space(models[0], traffic=TRAFFIC, largest_batch=8, disaggregate=False))
    never, always = (
        best_of(
            space(
                models[0],
                traffic=TRAFFIC,
                largest_batch=8,
                disaggregate=False,
                speculation=Speculation(3, chance),
            )
        )
        for chance in (0.0, 1.0)
    )
    assert never.tokens_per_s < plain.tokens_per_s < always.tokens_per_s
    assert always.tpot_s < plain.tpot_s
    assert always.tokens_per_pass == pytest.approx(63 / 16)


def test_a_draft_is_divided_as_far_as_it_can_be(models):
    asked = made(models, True, devices=8)
    assert {(r.grid.width, r.draft.grid.width) for r in asked.replicas} == {(1, 1), (2, 2), (4, 4), (8, 4)}
    layers = len(asked.replicas[0].draft.grid.base.index)
    assert max(r.stages for r in asked.replicas) <= layers < len(asked.replicas[0].grid.base.index)
