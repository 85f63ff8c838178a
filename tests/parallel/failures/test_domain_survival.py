"""Domains with devices out: NTP's published shares, every state of small clusters, fixed numbers of failures."""

from __future__ import annotations

from itertools import product
from math import ceil, comb

import numpy as np
import pytest

from phaze.parallel.failures.domain_survival import (
    _POWER,
    FASTEST,
    Domains,
    OnFailure,
    Replicas,
    Survival,
    kept_share,
)
from phaze.parallel.failures.failure_record import Component, FailureRecord, Unit, independent_devices

NONE = np.ones(1)


def alike(count, size, share, rest=0):
    each = independent_devices(share)
    return Domains(count, each.devices_out(size), each.devices_out(rest) if rest else NONE)


def test_published_shares_of_whole_domains():
    """NTP (arXiv 2504.06095): TP64 at f = 1e-3 has 94 % availability; NVL32 loses up to 12 % at 4e-3."""
    assert round(100 * alike(1, 64, 1e-3).whole, 2) == 93.80
    assert round(100 * (1 - alike(1, 32, 4e-3).whole), 2) == 12.04


@pytest.mark.parametrize(("share", "dropped", "narrower"), [(1e-3, 3.2, 0.40), (4e-3, 12.4, 1.55)])
def test_published_monte_carlo(share, dropped, narrower):
    """32,000 devices in domains of 32, replicas of eight, local batch 8, so many devices out as the share says.

    What we work out is the mean over how many that may be, each with the loss of a fixed number of failures.
    """
    domains, size, replicas = 1000, 32, 125
    failed = round(share * domains * size)
    lost = _lost_by_fixed_failures(domains, size, replicas, 3 * failed + 40)
    assert 100 * lost[failed] == pytest.approx(dropped, abs=0.05)
    assert 100 * lost[failed] / 8 == pytest.approx(narrower, abs=0.005)
    many = np.arange(len(lost))
    chance = np.exp([_log_binomial(domains * size, k, share) for k in many])
    found = Survival(alike(domains, size, share), Replicas(replicas, 8, size, 8))
    assert 1 - found.kept == pytest.approx(chance @ lost, rel=1e-6)
    ntp = Survival(found.domains, found.replicas, OnFailure.NTP)
    assert 1 - ntp.kept == pytest.approx(
        (1 - found.kept) / 8, rel=0.01
    )  # more than four of a domain are rare


def _lost_by_fixed_failures(domains, size, replicas, most):
    """Share of replicas hit by 0, 1, ... failures: each hits a new domain in proportion to what is left of such."""
    hit, found = np.arange(domains + 1), []
    chance = (hit == 0).astype(float)
    for number in range(most + 1):
        found.append(chance @ -(-hit // (domains // replicas)) / replicas)
        new = (domains - hit) * size / (domains * size - number)
        chance = chance * (1 - new) + np.concatenate([[0.0], (chance * new)[:-1]])
    return np.array(found)


def _log_binomial(n, k, p):
    from scipy.stats import binom

    return binom.logpmf(k, n, p)


SMALL = [
    # domains, size, rest, width, stages, replicas, batch
    (2, 4, 0, 4, 1, 2, 3),
    (2, 4, 0, 2, 2, 2, 3),
    (3, 3, 0, 3, 1, 2, 4),
    (2, 4, 2, 2, 2, 2, 3),
    (2, 5, 0, 2, 1, 3, 3),
    (3, 3, 0, 3, 3, 1, 2),
]


@pytest.mark.parametrize("policy", OnFailure)
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_every_state_of_a_small_cluster(case, policy):
    """By every combination of devices that are out, groups dealt to replicas as they should be."""
    domains, size, rest, width, stages, replicas, batch = case
    share, expected, spares = 0.15, 0.0, np.zeros(20)
    sizes = [size] * domains + ([rest] if rest else [])
    for out in product(*(range(n + 1) for n in sizes)):
        chance = np.prod(
            [comb(n, k) * share**k * (1 - share) ** (n - k) for n, k in zip(sizes, out, strict=True)]
        )
        groups = [m for n, k in zip(sizes, out, strict=True) for m in _missing(n, k, width)]
        used = sorted(groups)[: replicas * stages]
        kept = [
            kept_share(policy, width, max(used[i : i + stages]), batch) for i in range(0, len(used), stages)
        ]
        expected += chance * sum(kept) / replicas
        spares[sum(kept_share(policy, width, m, batch) < 1 for m in groups)] += chance
    found = Survival(alike(domains, size, share, rest), Replicas(replicas, stages, width, batch), policy)
    assert found.kept == pytest.approx(expected, rel=1e-12)
    assert found.spare_groups == np.argmax(np.cumsum(spares) >= 0.99)


def _missing(size, out, width):
    """Devices that each group of a domain misses, as few groups as can be."""
    left, found = size - out, []
    for _ in range(size // width):
        found.append(width - min(left, width))
        left -= min(left, width)
    return found


def test_groups_across_domains():
    """Twelve devices in domains of four as two groups of six: three domains are one."""
    found = Survival(alike(3, 4, 0.1), Replicas(2, 1, 6, 2))
    assert found.kept == pytest.approx(
        0.9**12 + 0.5 * (sum(comb(12, k) * 0.1**k * 0.9 ** (12 - k) for k in range(1, 7)))
    )


def test_narrower_groups_keep_more_and_clocks_more_still():
    random = np.random.default_rng(2)
    for _ in range(60):
        size = int(random.integers(1, 12))
        width = int(random.integers(1, size + 1))
        stages, batch, count = (int(n) for n in random.integers(1, 5, 3))
        domains = alike(count * stages, size, float(random.uniform(0, 0.2)))
        replicas = Replicas(count * (size // width), stages, width, batch)
        kept = [Survival(domains, replicas, policy).kept for policy in OnFailure]
        assert 0 <= kept[0] <= kept[1] + 1e-12 <= kept[2] + 2e-12 <= 1 + 3e-12


def test_no_loss_where_nothing_is_missing():
    assert all(kept_share(policy, 8, 0, 5) == 1 for policy in OnFailure)
    assert Survival(alike(8, 4, 0.0), Replicas(4, 2, 4, 3), OnFailure.NTP).kept == 1
    assert Survival(alike(8, 4, 0.0), Replicas(4, 2, 4, 3)).spare_groups == 0


def test_power_makes_up_for_two_devices_of_32():
    """NTP: TP30 needs 1.067 times the speed, and 1.1 times the power gives 1.069."""
    power, per_watt = _POWER[1]
    assert power * per_watt == pytest.approx(1.069, abs=5e-4)
    assert 32 / 30 < power * per_watt < FASTEST
    assert kept_share(OnFailure.NTP_POWER, 32, 2, 8) == 1
    assert kept_share(OnFailure.NTP, 32, 2, 8) == 7 / 8


def test_spares_take_the_place_of_what_is_hit():
    domains = alike(16, 4, 0.02)
    kept = [Survival(domains, Replicas(count, 1, 4, 1)).kept for count in (16, 14, 12, 8)]
    assert kept == sorted(kept)
    assert kept[-1] > 0.999 > kept[0]


def test_domain_of_hosts_by_every_state():
    """Devices, links, hosts and the domain: two hosts of two in one of four, of two and one in one of three."""
    shares = {Unit.DEVICE: 0.1, Unit.LINK: 0.05, Unit.HOST: 0.2, Unit.DOMAIN: 0.01}
    record = FailureRecord(
        name="x",
        host_devices=2,
        restart_s=0,
        components=(
            *(Component(fails=unit, mtbf_s=1 - out, repair_s=out) for unit, out in shares.items()),
            Component(fails=Unit.HOST, mtbf_s=5.0, planned=True),
            Component(fails=Unit.JOB, mtbf_s=5.0),
        ),
    )
    for size in (4, 3):
        hosts = ceil(size / 2)
        expected = np.zeros(size + 1)
        units = [0.1] * size + [0.05] * size + [0.2] * hosts + [0.01]
        for state in product((False, True), repeat=len(units)):
            chance = np.prod([u if s else 1 - u for u, s in zip(units, state, strict=True)])
            devices, links, host, (domain,) = (
                state[:size],
                state[size : 2 * size],
                state[2 * size : 2 * size + hosts],
                state[-1:],
            )
            expected[sum(domain or devices[i] or links[i] or host[i // 2] for i in range(size))] += chance
        assert record.devices_out(size) == pytest.approx(expected)
