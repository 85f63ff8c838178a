"""Exchanges of routed rows among experts by kernels of their own, and all-reduces by one kernel, beside NCCL's.

Rows go straight to the devices of their experts, over links inside a node and over adapters beyond it, as fast as the
slower of both, and as the multiprocessors that the kernel was given can copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats


@dataclass(frozen=True, slots=True)
class ExchangeLaw:
    """Constants of one library's kernels on chips of one family.

    `launch_s`: of one exchange, `across_s` on top of it between nodes, `rank_s` for every device that takes part.
    `efficiency`, `adapter_efficiency`: shares of the bandwidth of links and adapters. `copied_bytes_per_s`: what one
    multiprocessor sends.
    """

    launch_s: float
    across_s: float
    rank_s: float
    efficiency: float
    adapter_efficiency: float
    copied_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Exchanges:
    """Exchanges, arrays of one length.

    `ranks`: devices; `inside_bytes`, `across_bytes`: that a device sends to others of its node and beyond it;
    `multiprocessors`: that copy, infinite where none were set apart.
    """

    ranks: Floats
    inside_bytes: Floats
    across_bytes: Floats
    multiprocessors: Floats


def exchanges_s(
    exchanges: Exchanges, link_bytes_per_s: float, adapter_bytes_per_s: float, law: ExchangeLaw
) -> Floats:
    """Seconds of each exchange.

    launch + across (if any byte leaves the node) + ranks x rank + the longest over links, adapters, multiprocessors.
    """
    e, inside, across = exchanges, exchanges.inside_bytes, exchanges.across_bytes
    over_links = inside / (law.efficiency * link_bytes_per_s)
    over_adapters = across / (law.adapter_efficiency * adapter_bytes_per_s)
    copied = (inside + across) / (law.copied_bytes_per_s * e.multiprocessors)
    fixed = law.launch_s + law.rank_s * e.ranks + law.across_s * (across > 0)
    seconds: Floats = fixed + np.maximum.reduce([over_links, over_adapters, copied])
    return seconds


def sent_rows(
    tokens: Floats, copies: Floats, ranks: Floats, near: Floats, *, merged: bool
) -> tuple[Floats, Floats]:
    """Rows that a device sends to the others of its node of `near` devices, and beyond it, of `ranks` in all.

    Each token has `copies` experts, chosen by chance. `merged`: a device that has several of them is sent one row, as
    is a node, whose devices pass it on.
    """
    if not merged:
        return tokens * copies * (near - 1) / ranks, tokens * copies * (ranks - near) / ranks
    devices = ranks * (1 - (1 - 1 / ranks) ** copies)
    nodes = ranks / near
    reached = nodes * (1 - (1 - 1 / nodes) ** copies)
    return tokens * devices * (near - 1) / near, tokens * reached * (1 - 1 / nodes)
