"""What is remembered makes a search faster and changes nothing: the way it takes, the counts, the last digit."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from small_cases import Remembering, small_decoder

from phaze.explore.answers.main_job import explore
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Budgets, ExploreRequest, StrategyChoice, Task
from phaze.explore.request.search_progress import Clock
from phaze.explore.request.search_resources import SearchResources
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import parse_space
from phaze.runs.store.evaluation_database import Database, GuardedStore

SPACE = """
schema_version: 1
name: several
axes:
  - {fields: [tensor_cores], values: [1, 6]}
  - fields: [vector_cores, vector_core_alus]
    values: [[1, 64], [3, 1024]]
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""


class Counting(Remembering):
    """A store in memory that counts."""

    hits = asked = 0

    def get(self, keys):
        found = super().get(keys)
        self.hits += len(found)
        self.asked += len(keys)
        return found


@pytest.fixture(scope="module")
def request_(tmp_path_factory):
    task = Task(small_decoder(tmp_path_factory.mktemp("w")), 2, load_network(), global_batch=4)
    return ExploreRequest(
        task=task,
        space=parse_space(SPACE, "several.yaml"),
        budgets=Budgets(power_w=500.0),
        time_limit_s=600.0,
    )


def questions(request_):
    yield "certified", request_
    yield "axes", replace(request_, axes=("throughput", "energy_per_sample"), gap=0.01)
    yield "random", replace(request_, strategy=StrategyChoice("random", 4))


def answer(request_, store=None):
    """Everything in a document but times."""
    found = explore(
        request_,
        clock=Clock(600.0),
        resources=SearchResources(store=store) if store is not None else SearchResources(),
    )
    document = found.document.model_dump(mode="json", by_alias=True)
    del document["manifest"]
    if told := document["strategy"]:
        for one in (told, *told["history"]):
            one.update({name: 0.0 for name in ("runtime_s", "elapsed_s") if name in one})
    return document, {name: column.tolist() for name, column in found.designs.items()}


def test_an_answer_is_the_same_however_much_is_remembered(request_):
    chosen, everything = random.Random(1), Counting()
    for name, question in questions(request_):
        expected = answer(question)
        full = Counting()
        assert answer(question, full) == expected, name
        full.hits = full.asked = 0
        assert answer(question, full) == expected, name
        assert full.hits == full.asked > 2, name
        # Half of it, and a part of the rest torn.
        part = {key: value[: chosen.choice((-1, len(value)))] for key, value in full.items()}
        part = Counting({key: value for key, value in part.items() if chosen.random() < 0.6})
        assert answer(question, part) == expected, name
        assert answer(question, everything) == expected, name
        everything.put(full)


def test_damaged_entries_and_those_of_other_versions_change_nothing(request_, tmp_path):
    expected = answer(request_)
    path, chosen = tmp_path / "x.sqlite", random.Random(2)
    other = Database(path, "another version")
    assert answer(request_, GuardedStore(other, "the cache")) == expected
    here = Database(path, "this version")
    assert answer(request_, GuardedStore(here, "the cache")) == expected
    with other._transaction() as connection:
        rows = connection.execute("SELECT id, value FROM entries").fetchall()
        for number, value in rows:
            if chosen.random() < 0.5:
                position = chosen.randrange(len(value))
                spoilt = value[:position] + bytes([value[position] ^ 1]) + value[position + 1 :]
                connection.execute("UPDATE entries SET value = ? WHERE id = ?", (spoilt, number))
    assert answer(request_, GuardedStore(here, "the cache")) == expected
    other.close()
    here.close()


def test_bands_and_placements_do_not_depend_on_what_is_asked_together(request_):
    table, chosen = request_.space.table(range(request_.space.size)), np.random.default_rng(3)
    whole = Evaluator(request_.task, table)
    setting = whole.configs[-1]
    rows, limit = np.arange(len(table)), np.full(len(table), np.inf)
    lower, upper = whole.timed(setting).bounds(rows)
    bounds = whole.bounds(setting, rows, limit)
    for size in (1, 2, 5):
        some = np.sort(chosen.choice(len(table), size, replace=False))
        part = table.take(some)
        low, high = Evaluator(request_.task, part).timed(setting).bounds(np.arange(size))
        for one, other in ((low, lower), (high, upper)):
            assert np.array_equal(one.forward_s, other.forward_s[some])
            assert np.array_equal(one.backward_s, other.backward_s[some])
        alone = whole.on(part).bounds(setting, np.arange(size), limit[:size])
        assert np.array_equal(alone.lower_s, bounds.lower_s[some])
        assert np.array_equal(alone.upper_s, bounds.upper_s[some])
