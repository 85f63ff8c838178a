"""What layers of many settings have in common is costed once, and comes to the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
from cost_cases import NETWORK, grid, product, reduction, tensor, vector

from phaze.cost import operator_tables
from phaze.cost.cost_model import CostModel
from phaze.cost.operator_tables import OperatorTables
from phaze.parallel.training.layer_costs import without_links
from phaze.workload.work import Pass

TABLE = grid(
    tensor_cores=(1, 4),
    tensor_core_rows=(16, 64),
    vector_core_alus=(64, 512),
    global_buffer_bytes=(2.0**20, 2.0**24),
    link_bandwidth_bytes_per_s=(20e9, 300e9),
)
ONE = Pass((tensor("a", product(64, 32, 128)), reduction(4e6, 4), vector("v", 4096, 2)), ((0, 1), (1, 2)))
OTHER = Pass((reduction(4e6, 4), tensor("b", product(64, 32, 128)), tensor("c", product(32, 96, 16))), ())


@pytest.fixture
def asked(monkeypatch):
    """How often a product, and a collective, is costed."""
    counts, cost, link_s = Counter(), operator_tables.GemmTables._cost, operator_tables.link_s

    def costed(self, gemm):
        counts[gemm] += 1
        return cost(self, gemm)

    def timed(link, *given):
        counts[link] += 1
        return link_s(link, *given)

    monkeypatch.setattr(operator_tables.GemmTables, "_cost", costed)
    monkeypatch.setattr(operator_tables, "link_s", timed)
    return counts


def test_equal_products_and_collectives_are_costed_once(asked):
    model = CostModel(TABLE, NETWORK)
    for one in (ONE, OTHER):
        model.costs(one)
    model.links_s([ONE.works[1].link, OTHER.works[0].link])
    assert set(asked.values()) == {1}
    assert len(asked) == 3


def test_where_links_take_no_time_products_are_those_of_the_chips_as_they_are(asked):
    model = CostModel(TABLE, NETWORK)
    for one in (ONE, OTHER):
        model.costs(one)
    products = Counter({gemm: n for gemm, n in asked.items() if gemm != ONE.works[1].link})
    _, free = without_links(model, TABLE)
    found = [free.costs(one).tables for one in (ONE, OTHER)]
    assert {gemm: asked[gemm] for gemm in products} == dict.fromkeys(products, 1)
    ideal = TABLE.replace(link_bandwidth_bytes_per_s=np.full(len(TABLE), 1e18))
    alone = CostModel(ideal, NETWORK.ideal())
    for one, tables in zip((ONE, OTHER), found, strict=True):
        same(tables, alone.costs(one).tables)


def test_other_chips_cost_their_own_products():
    model = CostModel(TABLE, NETWORK)
    model.costs(ONE)
    larger = TABLE.replace(global_buffer_bytes=np.full(len(TABLE), 2.0**21))
    same(
        CostModel(larger, NETWORK, like=model).costs(ONE).tables, CostModel(larger, NETWORK).costs(ONE).tables
    )


def test_bounds_of_a_pass_are_made_once():
    model = CostModel(TABLE, NETWORK)
    first = model.lower_tables(ONE)
    for o in range(100):
        model.lower_tables(Pass((vector("v", 1000 + o, 2),), ()))
    assert model.lower_tables(ONE) is first


def same(one: OperatorTables, other: OperatorTables) -> None:
    """Raises where two tables differ in a bit."""
    for field in fields(one):
        if field.name not in ("tensor", "kinds"):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))
    for name in ("first", "of_operator"):
        np.testing.assert_array_equal(getattr(one.kinds, name), getattr(other.kinds, name))
    for name in ("single", "parallel", "buffer"):
        np.testing.assert_array_equal(getattr(one.tensor, name), getattr(other.tensor, name))
