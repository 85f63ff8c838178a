"""An archive keeps exactly the Pareto set and answers queries as its definition says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.explore.frontier import pareto_archive as module
from phaze.explore.frontier.pareto_archive import ParetoArchive, nondominated

small = st.integers(1, 4)


@st.composite
def cases(draw):
    """k, points (others, throughput, key number) and queries (others, throughput), with many ties."""
    k = draw(st.integers(0, 4))
    point = st.tuples(st.tuples(*[small] * k), small)
    points = draw(st.lists(st.tuples(point, st.integers(0, 3)), max_size=25))
    return k, [(*p, key) for p, key in points], draw(st.lists(point, min_size=1, max_size=20))


def better(one, other):
    """Nowhere worse, and not the same."""
    nowhere_worse = all(a <= b for a, b in zip(one[0], other[0], strict=True)) and one[1] >= other[1]
    return nowhere_worse and one[:2] != other[:2]


def filled(k, points):
    archive = ParetoArchive(k)
    for others, throughput, key in points:
        archive.add([float(v) for v in others], float(throughput), (float(key), key))
    return archive


@given(cases())
def test_keeps_the_pareto_set_and_the_smallest_keys(case):
    k, points, _ = case
    archive = filled(k, points)
    found = {
        (tuple(int(v) for v in others), int(throughput), key[1])
        for others, throughput, key in zip(archive.others, archive.throughput, archive.keys, strict=True)
    }
    undominated = [p for p in points if not any(better(q, p) for q in points)]
    assert found == {(*p[:2], min(q[2] for q in undominated if q[:2] == p[:2])) for p in undominated}
    assert len(archive) == len(found)
    assert (np.diff(archive.throughput) <= 0).all()


@given(cases())
def test_adding_tells_whether_the_point_is_a_member(case):
    k, points, _ = case
    archive = ParetoArchive(k)
    for others, throughput, key in points:
        added = archive.add(others, throughput, (float(key), key))
        member = any(
            tuple(o) == others and t == throughput and kept[1] == key
            for o, t, kept in zip(archive.others, archive.throughput, archive.keys, strict=True)
        )
        assert added == member


@given(cases())
def test_queries_answer_as_defined(case):
    k, points, queries = case
    archive = filled(k, points)
    others = np.array([q[0] for q in queries], dtype=float).reshape(len(queries), k)
    throughput = np.array([q[1] for q in queries], dtype=float)
    assert archive.dominates(others, throughput).tolist() == [
        any(better(p, q) for p in points) for q in queries
    ]
    assert archive.threshold(others).tolist() == [
        max((p[1] for p in points if all(np.less_equal(p[0], q[0]))), default=0.0) for q in queries
    ]


@given(st.integers(1, 4).flatmap(lambda k: st.lists(st.tuples(*[small] * k), min_size=1, max_size=30)))
def test_nondominated_is_what_its_definition_says(rows):
    expected = [not any(better((q, 0), (p, 0)) for q in rows) for p in rows]
    assert nondominated(np.array(rows, dtype=float)).tolist() == expected


@pytest.mark.parametrize("k", [1, 3])
def test_many_points_across_blocks(k, monkeypatch):
    monkeypatch.setattr(module, "_MEMBERS", 4)
    monkeypatch.setattr(module, "_QUERIES", 16)
    values = np.random.default_rng(k).integers(1, 9, (200, k + 1)).astype(float)
    archive = ParetoArchive(k)
    for i, row in enumerate(values):
        archive.add(row[1:], -row[0], (0.0, i))
    kept = nondominated(values)
    assert {tuple(v) for v in values[kept]} == {
        (-t, *o) for o, t in zip(archive.others.tolist(), archive.throughput.tolist(), strict=True)
    }
    dominated = archive.dominates(values[:, 1:], -values[:, 0])
    assert (dominated == ~kept).all()
