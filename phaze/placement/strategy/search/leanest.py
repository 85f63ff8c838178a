"""Which choices of what hosts keep bound the others from below, before anything but the optimizer's step is known."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.strategy import Offload, Strategy


def leanest(estimator: Estimator, offloads: Sequence[frozenset[Offload]]) -> frozenset[frozenset[Offload]]:
    """Those without another one that leaves a part of theirs and steps no slower: its transfers never take longer.

    Raises InputError where the architecture does not tell what they need of a host.
    """
    step_s = {offload: estimator.step_s(Strategy(1, offload=offload)) for offload in offloads}
    return frozenset(
        one for one in offloads if not any(less < one and step_s[less] <= step_s[one] for less in offloads)
    )
