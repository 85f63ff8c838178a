"""When every action of a pipeline runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.arrays import Floats
from phaze.parallel.pipelines.action_order import ActionOrder


@dataclass(frozen=True)
class Timeline:
    """Start and end of every action, seconds from the start of the first: one array (A,) per device, in its order."""

    orders: tuple[ActionOrder, ...]
    starts_s: tuple[Floats, ...]
    ends_s: tuple[Floats, ...]

    @property
    def makespan_s(self) -> float:
        """End of the last action."""
        return float(max(ends[-1] for ends in self.ends_s))

    @property
    def period_s(self) -> float:
        """Period from one iteration to the next if no device waits for the others between them: the longest span.

        Every device starts over as soon as it has done its own part, as under the optimizer of the zero-bubble papers,
        which validates afterwards (2401.10241, section 4).
        """
        return float(self.spans_s.max())

    @property
    def spans_s(self) -> Floats:
        """Span of every device from the start of its first to the end of its last action, (p,)."""
        ends = zip(self.starts_s, self.ends_s, strict=True)
        return np.array([ends[-1] - starts[0] for starts, ends in ends])

    @cached_property
    def busy_s(self) -> Floats:
        """Seconds that every device computes, (p,); actions that run as one count once."""
        parts = zip(self.orders, self.starts_s, self.ends_s, strict=True)
        return np.array([(ends - starts)[~order.joined].sum() for order, starts, ends in parts])

    @property
    def idle_share(self) -> Floats:
        """Share of the makespan in which every device does not compute, (p,)."""
        whole = self.makespan_s
        return 1.0 - self.busy_s / whole if whole > 0.0 else np.zeros(len(self.orders))
