"""Engines as data: what they add to passes, the policies they have, and what is wrong in a file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_cases import aimed, served, served_mixture, space

from phaze.errors import InputError
from phaze.parallel.serving import Policy, Traffic
from phaze.parallel.serving.replicas.model_replica import Chunk, Replica
from phaze.parallel.serving.serving_engine import NO_ENGINE, Overheads, list_engines, load_engine
from phaze.parallel.serving.serving_search import best_of
from phaze.parallel.serving.serving_trial import trial


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    return space(served_mixture(tmp_path_factory.mktemp("mixture")), devices=1, batch=8, disaggregate=False)


def test_packaged_engines_say_where_they_are_from():
    for name in list_engines():
        engine = load_engine(name)
        assert engine.name == name
        assert len(engine.source) > 40
        for fit in engine.fitted:
            assert fit.before_pct > fit.error_pct
            assert all(getattr(engine, name) > 0 for name in fit.constants)


@pytest.mark.parametrize("stages", [1, 2])
def test_what_an_engine_adds_to_a_pass_by_hand(mixture, stages):
    plain = Replica(mixture.grids[0], mixture.links, stages)
    slow = replace(plain, overheads=Overheads(1e-3, 1e-5, 1e-4))
    batch = np.array([0.0, 1.0, 8.0])
    for chunk in (None, Chunk(256)):
        added = (slow.pass_costs(batch, 300.0, chunk) - plain.pass_costs(batch, 300.0, chunk))[..., 0]
        experts = np.add.reduceat(
            [float("experts" in plain.grid.base.layers[u].kind) for u in plain.grid.base.index], plain.starts
        )
        assert experts.sum() == 3
        wanted = 1e-3 + 1e-5 * batch[:, None] + 1e-4 * experts
        assert added == pytest.approx(wanted * (1.0 if chunk else (batch > 0)[:, None]))


def test_a_slow_engine_serves_less(mixture):
    slow = NO_ENGINE.model_copy(update={"step_s": 5e-3})
    plan, slowed = best_of(mixture), best_of(replace(mixture, options=replace(mixture.options, engine=slow)))
    assert slowed.tokens_per_s < 0.5 * plan.tokens_per_s
    assert slowed.tpot_s > 5e-3


def test_requests_take_time_before_they_are_taken(mixture):
    """The first token is that much later, and fewer of the clients are in the batch, as in the simulator."""
    slow = NO_ENGINE.model_copy(update={"request_s": 0.002})
    traffic = replace(mixture.traffic, clients=6)
    asked = replace(mixture, traffic=traffic, options=replace(mixture.options, engine=slow))
    plain, late = best_of(replace(mixture, traffic=traffic)), best_of(asked)
    assert late.ttft_s > 0.002 > plain.ttft_s
    assert late.pools[0].batch < plain.pools[0].batch
    on_the_way = late.requests_per_s * (late.ttft_s + traffic.later_tokens * late.tpot_s)
    assert on_the_way == pytest.approx(6, rel=0.02)
    ran = trial(late, asked, 300)
    assert ran.tpot.mean_s == pytest.approx(late.tpot_s, rel=0.05)
    assert ran.ttft.p50_s == pytest.approx(late.ttft_s, rel=0.1)


@pytest.mark.parametrize("policy", [Policy.CHUNKED, Policy.PREFILL_FIRST])
def test_an_engine_has_its_policies_alone(mixture, policy):
    engine = NO_ENGINE.model_copy(update={"policies": (policy,)})
    asked = aimed(mixture, engine=engine)
    assert best_of(asked).policy is policy
    assert (None in asked.pass_sizes) == (policy is Policy.PREFILL_FIRST)


def test_a_pass_takes_as_many_prompt_tokens_as_the_engine(tmp_path):
    short = space(served(tmp_path), traffic=Traffic(32, 12))
    assert short.most_prompts(32) == 32
    engine = NO_ENGINE.model_copy(update={"pass_tokens": 100})
    assert aimed(short, engine=engine).most_prompts(32) == 3


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("step_s: -1", "step_s"),
        ("policies: []", "policies"),
        ("policies: [fast]", "policies"),
        ("steps: 1", "steps"),
    ],
)
def test_a_bad_file_is_told(tmp_path, text, wrong):
    path = tmp_path / "engine.yaml"
    path.write_text(f"name: mine\nsource: measured\n{text}\n")
    with pytest.raises(InputError, match=wrong):
        load_engine(path)
    with pytest.raises(InputError, match="no engine is named"):
        load_engine("abacus")
