"""How devices are split into pools of prompts and of tokens, against DéjàVu's rule (arXiv 2403.01876)."""

from __future__ import annotations

from itertools import product
from math import ceil

import pytest

from phaze.parallel.serving.pools.disaggregated_pools import split
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

MACHINES, PROMPT_S, TOKEN_S, TOKENS = (4, 8, 16, 30), (0.1, 0.4, 2.0), (0.005, 0.02), (32, 128, 512)


def served(machines, prompts, rates):
    return min(prompts * rates[0], (machines - prompts) * rates[1])


@pytest.mark.parametrize("overhead", [1.0, 1.05])
def test_pools_are_split_at_least_as_well_as_by_the_rule(overhead):
    """Y of a prompt, stretched by what streaming its cache takes, t of each of N tokens; one request at a time each.

    The rule rounds up, D_t = ceil(D N t / (m Y + N t)); the split is the best of all, so no worse, and no more than
    one machine from the exact share.
    """
    for machines, prompt_s, token_s, tokens in product(MACHINES, PROMPT_S, TOKEN_S, TOKENS):
        rates = 1 / (overhead * prompt_s), 1 / (tokens * token_s)
        share = machines * tokens * token_s / (overhead * prompt_s + tokens * token_s)
        ruled = min(max(ceil(share), 1), machines - 1)
        prompts, decoding = split(machines, (1, 1), rates)
        assert prompts + decoding <= machines
        best = min(prompts * rates[0], decoding * rates[1])
        assert best >= served(machines, machines - ruled, rates) * (1 - 1e-9)
        assert best == pytest.approx(max(served(machines, p, rates) for p in range(1, machines)))
        least = served(machines, machines - share, rates)  # of fractions of machines: all that there is
        assert best <= least * (1 + 1e-9)


@pytest.mark.parametrize(("model", "published_gb"), [("bloom-176b", 0.004014)])
def test_a_token_keeps_as_many_bytes_as_published(model, published_gb):
    """Keys and values in 16 bits: 4 L h bytes a token."""
    chain = load_workload(model, Mode.PREFILL).chain(1, 1)
    tokens = load_workload(model, Mode.PREFILL).sequence_length
    kept = sum(chain.layers[unique].cache_bytes for unique in chain.index)
    assert kept / tokens / 1e9 == pytest.approx(published_gb, abs=5e-7)
