"""What a prefix cache holds, at every capacity at once, against a cache that is kept block by block."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.parallel.serving.load.prefix_cache import PrefixReuse


def kept_block_by_block(requests, capacity):
    """Blocks that each request finds in a cache from which the least recently used ones leave."""
    held, found = OrderedDict(), []
    for blocks in requests:
        known = 0
        while known < len(blocks) and blocks[known] in held:
            known += 1
        found.append(known)
        for block in reversed(blocks):
            held.pop(block, None)
            held[block] = True
        while len(held) > capacity:
            held.popitem(last=False)
    return found


@st.composite
def conversations(draw):
    """Prompts that go on where an earlier one was, or begin anew; a block is named after all before it."""
    requests = []
    for number in range(draw(st.integers(1, 12))):
        base = draw(st.sampled_from([(), *requests]))
        shared = base[: draw(st.integers(0, len(base)))]
        requests.append((*shared, *(f"{number}:{at}" for at in range(draw(st.integers(0, 4))))))
    return requests


@given(conversations(), st.integers(0, 40))
def test_every_capacity(requests, capacity):
    assert PrefixReuse.of(requests).found(capacity).tolist() == kept_block_by_block(requests, capacity)


def test_an_endless_cache_finds_all_that_was_seen():
    reuse = PrefixReuse.of([("a", "b"), ("a", "c"), ("a", "b", "d"), ()])
    assert reuse.found(np.inf).tolist() == [0, 1, 2, 0]
    assert reuse.found(0).tolist() == [0, 0, 0, 0]


def test_more_room_never_finds_less():
    rng = np.random.default_rng(0)
    requests = [(f"{rng.integers(9)}", f"{i % 7}") for i in range(200)]
    hits = [PrefixReuse.of(requests).found(room).sum() for room in range(20)]
    assert hits == sorted(hits)
    assert hits[-1] > hits[1] > 0


def test_a_prompt_longer_than_the_cache_keeps_its_beginning():
    assert PrefixReuse.of([tuple("abcd"), tuple("abcd")]).found(2).tolist() == pytest.approx([0, 2])
