"""The search by bounds against all plans, whatever the load; what exchanges are said to take against exact passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_cases import aimed, served, served_mixture, space

from phaze.cost.fidelity import Fidelity
from phaze.parallel.serving import Targets, Traffic
from phaze.parallel.serving.bounds.least_passes import exact_passes
from phaze.parallel.serving.bounds.service_bounds import ServiceBounds
from phaze.parallel.serving.bounds.token_bounds import TokenBound
from phaze.parallel.serving.serving_search import choices
from phaze.parallel.serving.way_search import WaySearch

LOADS = {
    "saturated": Traffic(256, 64),
    "one token more": Traffic(700, 2),
    "stream": Traffic(256, 64, rate_per_s=40.0),
    "busy": Traffic(256, 64, rate_per_s=900.0),
    "clients": Traffic(256, 64, clients=37),
    "prefix": Traffic(512, 32, cached_tokens=256, shared=True),
}
TARGETS = (Targets(), Targets(ttft_s=0.02, tpot_s=0.002))


@pytest.fixture(scope="module", params=["dense", "experts"])
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    source = served(folder) if request.param == "dense" else served_mixture(folder)
    return space(source, devices=8, batch=8)


def loaded(made, load, targets):
    """The space under another load; what is known of the model and the chip is shared."""
    return replace(made, traffic=load, targets=targets, known_model=made.served, known_chip=made.chip)


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("load", LOADS)
def test_the_best_of_all_plans(made, load, targets):
    asked = loaded(made, LOADS[load], targets)
    search, every = WaySearch(asked), list(choices(asked, []))
    found, best = search.run(), min(every, key=lambda choice: choice.rank, default=None)
    assert (found is None) == (best is None)
    if best is not None:
        assert found.rank == best.rank
        assert [(p.replica.devices, p.replica.together, p.at, p.count) for p in found.parts] == [
            (p.replica.devices, p.replica.together, p.at, p.count) for p in best.parts
        ]
        assert found.policy is best.policy


@pytest.mark.parametrize("disaggregate", [True, False])
def test_the_best_of_one_or_two_pools(made, disaggregate):
    asked = aimed(made, disaggregate=disaggregate)
    assert WaySearch(asked).run().rank == min(choice.rank for choice in choices(asked, []))


def test_little_is_costed_and_less_worked_out():
    """Of grids whose experts are dealt among servers, some."""
    asked = space("mixtral-8x7b", devices=16, batch=8, traffic=Traffic(2048, 64), disaggregate=False)
    search = WaySearch(asked)
    search.run()
    costed = [grid for grid in asked.grids if "tokens" in grid.__dict__]
    assert 0 < len(costed) < len(asked.grids)
    assert search.worked_out < len(asked.shapes) * len(asked.pass_sizes) / 10


@pytest.mark.parametrize("rung", list(Fidelity))
def test_exchanges_take_no_longer_than_passes(made, rung):
    """At every number of tokens at which passes are costed, between which they are straight."""
    for grid in (
        aimed(made).grids
        if rung is made.options.rung
        else space(made.workload, devices=8, batch=8, rung=rung).grids
    ):
        body = exact_passes(grid).body
        assert (TokenBound(grid).token_s * body.points <= body.values[:, 0] * (1 + 1e-9)).all()


def test_no_pool_beats_what_its_tokens_take(made):
    """By all but attention, at points and between them; of a decode pool at the batches that there are."""
    load, most = made.traffic, made.options.largest_batch
    room = np.array([made.limits.memory_bytes])
    for grid in made.grids:
        passes, bound = exact_passes(grid), TokenBound(grid)
        for tokens in (*passes.body.points, *np.linspace(1, passes.body.points[-1], 40)):
            assert bound.costed_token_s() * tokens <= passes.body.at(np.array([tokens]))[0, 0]
        bounds = ServiceBounds(made, (passes,), room)
        each = load.fresh_tokens, load.later_tokens
        for tokens, rates, batch in zip(each, (bounds.prefill, bounds.decode), (np.inf, most), strict=True):
            best = max(float(rate[0]) / shape.devices for shape, rate in rates.items())
            assert best <= bound.requests_per_s(tokens, costed=True, most=batch)
            assert bound.requests_per_s(tokens, costed=True) <= bound.requests_per_s(tokens) * (1 + 1e-9)


def test_uneven_experts_have_no_such_bound(made):
    grid = next(grid for grid in made.grids if grid.width > 1)
    assert TokenBound(grid).token_s > 0
    assert TokenBound(replace(grid, load=object())).token_s == 0
