"""When every pass of a plan runs, what it waits for, and what follows the last: one pipeline, device by device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from phaze.parallel.pipelines.action_order import Action, ActionKind
from phaze.parallel.pipelines.pipeline_simulation import precedence
from phaze.parallel.timeline.replayed_plan import ReplayedPlan

REDUCTION, OPTIMIZER, GATHER, HOST = (
    "gradient reduction",
    "optimizer step",
    "gather of weights",
    "host between iterations",
)


@dataclass(frozen=True, slots=True)
class Run:
    """Passes of one device that run as one, and the tensors that it receives before: (name, start, end) in s."""

    device: int
    actions: tuple[Action, ...]
    start_s: float
    end_s: float
    received: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Closing:
    """A part of what follows the last pass on a device, exposed."""

    device: int
    name: str
    start_s: float
    end_s: float


def runs(played: ReplayedPlan) -> list[Run]:
    """All passes of every device in its order."""
    timeline = played.timeline
    each = zip(timeline.orders, timeline.starts_s, timeline.ends_s, strict=True)
    found: list[Run] = []
    for device, (order, starts_s, ends_s) in enumerate(each):
        for action, start_s, end_s in zip(order, starts_s.tolist(), ends_s.tolist(), strict=True):
            run = Run(device, (action,), start_s, end_s)
            found.append(_joined(found.pop(), run) if action.joined else run)
    return found if played.costs.framework.hides_transfers else _receiving(played, found)


def _joined(one: Run, other: Run) -> Run:
    start_s, end_s = min(one.start_s, other.start_s), max(one.end_s, other.end_s)
    return Run(one.device, (*one.actions, *other.actions), start_s, end_s)


def _receiving(played: ReplayedPlan, found: list[Run]) -> list[Run]:
    """The passes with the receipts that block a device before them, as the simulation has these."""
    s, costs = played.strategy, played.costs
    found_s = costs.stage_times(s)
    work = precedence(s.schedule, s.pipeline_parallel, costs.microbatches(s), s.chunks, found_s.graph)
    ends_s = np.array([*(run.end_s for run in found), 0.0])
    way_s = np.append(found_s.transfer_s, 0.0)[work.way]
    ready_s = np.maximum(ends_s[work.before], ends_s[work.source].max(axis=1))
    rows = zip(found, ready_s.tolist(), way_s.tolist(), strict=True)
    return [_received(run, now_s, ways_s) for run, now_s, ways_s in rows]


def _received(run: Run, now_s: float, ways_s: list[float]) -> Run:
    received = []
    joined = (
        run.actions if len(run.actions) > 1 else run.actions * len(ways_s)
    )  # one may join several branches
    for action, seconds in zip(joined, ways_s, strict=False):
        if seconds > 0:
            what = "activations" if action.kind is ActionKind.FORWARD else "gradients"
            received.append((f"receive {what}", now_s, now_s + seconds))
            now_s += seconds
    return Run(run.device, run.actions, run.start_s, run.end_s, tuple(received))


def closing(played: ReplayedPlan) -> Iterator[Closing]:
    """Gradient synchronisation, optimizer and host time of each device after the last pass of all devices."""
    syncs = played.costs.gradient_sync(played.strategy)
    whole_s, host_s = played.iteration.iteration_s, played.costs.framework.iteration_s
    for device in range(len(played.timeline.orders)):
        now_s, sync = played.timeline.makespan_s, syncs.of_device(device)
        parts = ((REDUCTION, sync.reduction_s), (OPTIMIZER, sync.optimizer_s), (GATHER, sync.gather_s))
        for name, seconds in parts:
            if seconds > 0:
                yield Closing(device, name, now_s, now_s + seconds)
                now_s += seconds
        if host_s > 0:
            yield Closing(device, HOST, whole_s - host_s, whole_s)
