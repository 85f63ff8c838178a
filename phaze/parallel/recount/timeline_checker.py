"""Independent check of a timeline: every rule of a pipeline, held against every action, without the simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.parallel.pipelines.action_order import Action, ActionKind
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_schedule import Schedule, device_of
from phaze.parallel.pipelines.pipeline_timeline import Timeline
from phaze.tolerances import SAME


class TimelineError(Exception):
    """A timeline that breaks a rule: a defect of what made it."""


class _Ran(NamedTuple):
    """An action with its device and times, as messages tell it."""

    action: Action
    device: int
    start: float
    end: float


def check_timeline(
    timeline: Timeline, schedule: Schedule, microbatches: int, stages: int, chunks: Chunks
) -> None:
    """Verify that all work is done once and where it belongs, one action at a time, after what it needs.

    Raises TimelineError that says what is wrong.
    """
    check = _Check(timeline, schedule, microbatches, stages, chunks)
    check.presence()
    check.durations()
    check.devices()
    check.inputs()


class _Check:
    """The rules, one method each, on the actions of all devices one after the other: columns (A,).

    Actions that run as one make a group: `first` (G,) are the places of the groups' first actions, `group` (A,) the
    group of each action.
    """

    def __init__(
        self, timeline: Timeline, schedule: Schedule, microbatches: int, stages: int, chunks: Chunks
    ) -> None:
        self.chunks, self.last, self.microbatches = chunks, chunks.count - 1, microbatches
        self.copies = device_of(schedule, stages, chunks.per_device(stages))
        self.graph = chunks.graph
        self.half = microbatches // schedule.weight_copies
        self.forward_only = schedule.forward_only
        each = timeline.orders
        self.kind, self.microbatch, self.chunk, joined = (
            np.concatenate([getattr(order, name) for order in each])
            for name in ("kind", "microbatch", "chunk", "joined")
        )
        self.start, self.end = (np.concatenate(some) for some in (timeline.starts_s, timeline.ends_s))
        self.device = np.repeat(np.arange(len(each)), [len(order) for order in each])
        opens = ~joined | (np.diff(self.device, prepend=-1) != 0)
        self.first, self.group = np.flatnonzero(opens), np.cumsum(opens) - 1
        self.joined = joined
        self.slack = SAME * float(self.end.max(initial=0.0))

    def presence(self) -> None:
        """Every microbatch passes every chunk once: forward and, in training, input gradient and weight gradient."""
        k, c = self.microbatch, self.chunk
        belongs = (k >= 0) & (k < self.microbatches) & (c >= 0) & (c <= self.last)
        for what, kinds in (
            ("forward pass", (ActionKind.FORWARD,)),
            ("input gradient", (ActionKind.BACKWARD, ActionKind.INPUT_GRADIENT)),
            ("weight gradient", (ActionKind.BACKWARD, ActionKind.WEIGHT_GRADIENT)),
        ):
            mine, due = np.isin(self.kind, kinds), not self.forward_only or ActionKind.FORWARD in kinds
            belongs = belongs & (due | ~mine)
            counts = np.zeros((self.microbatches, self.last + 1), dtype=np.int64)
            np.add.at(counts, (k[mine & belongs], c[mine & belongs]), 1)
            extra = np.flatnonzero(mine & ~belongs)
            wrong = [(one, "is missing") for one in np.argwhere(counts == 0)[:1] if due]
            wrong += [((k[at], c[at]), "is not part of the work") for at in extra[:1]]
            wrong += [(one, f"runs {counts[tuple(one)]} times") for one in np.argwhere(counts > 1)[:1]]
            for (microbatch, chunk), why in wrong:
                raise TimelineError(f"{what} ({microbatch}, {chunk}) (microbatch, chunk) {why}")

    def durations(self) -> None:
        """Every action takes its time; those that run as one take that of a pair."""
        seconds = np.stack(
            [
                self.chunks.forward_s,
                self.chunks.backward_s,
                self.chunks.input_gradient_s,
                self.chunks.weight_gradient_s,
            ]
        )
        expected = seconds[self.kind, self.chunk]
        sizes = np.bincount(self.group)
        pairs = self.first[sizes > 1]
        self._pairs(pairs, sizes)
        for place in (pairs, pairs + 1):
            expected[place] = self.chunks.pairs_s[self.chunk[pairs]]
        took = self.end - self.start
        for at in np.flatnonzero(self.start != self.start[self.first][self.group]):
            raise TimelineError(f"{self._ran(at)} does not start with the action it is joined to")
        for at in np.flatnonzero(~(np.abs(took - expected) <= self.slack)):
            raise TimelineError(f"{self._ran(at)} takes {took[at]} s, not {expected[at]}")

    def _pairs(self, pairs: Integers, sizes: Integers) -> None:
        """Pairs that run as one: a forward pass and the whole backward pass of the chunk opposite."""
        second = np.minimum(pairs + 1, len(self.kind) - 1)
        fits = (sizes[self.group[pairs]] == 2) & (self.kind[pairs] == ActionKind.FORWARD)
        fits &= (self.kind[second] == ActionKind.BACKWARD) & (
            self.chunk[second] == self.last - self.chunk[pairs]
        )
        for at in pairs[~fits]:
            group = [self._ran(i) for i in np.flatnonzero(self.group == self.group[at])]
            raise TimelineError(f"{group} are no pair that may run as one")

    def devices(self) -> None:
        """Every device runs its own chunks, one action at a time."""
        home = self._home(self.chunk)
        for at in np.flatnonzero(self.device != home):
            raise TimelineError(f"{self._ran(at)} belongs on device {home[at]}")
        pause = np.zeros(len(self.first))
        if self.chunks.blocking:
            pause = np.add.reduceat(self._sends, self.first)
        late = self.start[self.first][1:] - self.end[self.first][:-1] - pause[:-1]
        apart = self.device[self.first][1:] != self.device[self.first][:-1]
        for at in np.flatnonzero(~apart & ~(late >= -self.slack)):
            before, after = (self._ran(self.first[i]) for i in (at, at + 1))
            raise TimelineError(f"{after} starts before {before} is over and sent")

    def inputs(self) -> None:
        """No action starts before what it needs is there; a receiver that is blocked was free for the transfer."""
        ended, way = self._sources
        blocking = self.chunks.blocking
        arrived = np.maximum.reduceat(ended if blocking else ended + way, self.first)
        device = self.device[self.first]
        free = np.append(0.0, np.where(device[1:] == device[:-1], self.end[self.first][:-1], 0.0))
        ready = np.maximum(arrived, free)
        if blocking:
            ready = ready + np.add.reduceat(way, self.first)
        for at in np.flatnonzero(~(self.start[self.first] - ready >= -self.slack)):
            raise TimelineError(f"{self._ran(self.first[at])} starts before its input is there")

    @property
    def _sources(self) -> tuple[Floats, Floats]:
        """When the input of every action is made, and the transfer between, (A,) each.

        Where chunks are a graph an action has the latest of its inputs, transfers that only delay among them.
        """
        if self.graph is not None:
            return self._joined_sources(self.graph.edges)
        k, c = self.microbatch, self.chunk
        forward, weight = self.kind == ActionKind.FORWARD, self.kind == ActionKind.WEIGHT_GRADIENT
        turned = ~forward & ~weight
        ends = np.zeros((2, self.microbatches, self.last + 2))
        ends[0, k[forward], c[forward]] = self.end[forward]
        ends[1, k[turned], c[turned]] = self.end[turned]
        loss = turned & (c == self.last)
        ended = np.where(weight, ends[1, k, c], ends[1, k, c + 1])
        ended = np.where(loss, ends[0, k, c], ended)
        ended = np.where(forward, np.where(c > 0, ends[0, k, c - 1], 0.0), ended)
        way = np.where(forward, self._way(c - 1), np.where(weight, 0.0, self._way(c)))
        return ended, way

    def _joined_sources(self, edges: Sequence[tuple[int, int]]) -> tuple[Floats, Floats]:
        """The same over edges; where transfers block, those of all inputs come one after the other."""
        done = {
            (bool(kind == ActionKind.FORWARD), k, c): end
            for kind, k, c, end in zip(self.kind, self.microbatch, self.chunk, self.end, strict=True)
        }
        feeds = {source for source, _ in edges}
        ended, ways = np.zeros((2, len(self.kind)))
        for at, (kind, k, c) in enumerate(zip(self.kind, self.microbatch, self.chunk, strict=True)):
            ahead = bool(kind == ActionKind.FORWARD)
            for (source, target), way in zip(edges, self.chunks.transfer_s, strict=True):
                other, here = (source, target) if ahead else (target, source)
                if here == c:
                    late = 0.0 if self.chunks.blocking else way
                    ended[at] = max(ended[at], done[ahead, k, other] + late)
                    ways[at] += way - late
            if not ahead and c not in feeds:
                ended[at] = done[True, k, c]
        return ended, ways

    @property
    def _sends(self) -> Floats:
        """Seconds that every action's result is under way, (A,)."""
        c = self.chunk
        if self.graph is not None:
            both = np.zeros((2, self.last + 1))
            for (source, target), way in zip(self.graph.edges, self.chunks.transfer_s, strict=True):
                both[0, source] += way
                both[1, target] += way
            found: Floats = np.where(self.kind == ActionKind.FORWARD, both[0, c], both[1, c])
            return found
        back = np.where(self.kind == ActionKind.WEIGHT_GRADIENT, 0.0, self._way(c - 1))
        return np.where(self.kind == ActionKind.FORWARD, self._way(c), back)

    def _way(self, chunk: Integers) -> Floats:
        """Transfer between such a chunk of every action's microbatch and the next; none at the ends, (A,)."""
        between = (chunk >= 0) & (chunk < self.last)
        here = np.clip(chunk, 0, max(self.last - 1, 0))
        if not self.last:
            return np.zeros(len(chunk))
        moves = self._home(here) != self._home(here + 1)
        return np.where(between & moves, self.chunks.transfer_s[here], 0.0)

    def _home(self, chunk: Integers) -> Integers:
        """The device of a chunk of every action's microbatch, (A,)."""
        home: Integers = self.copies[self.microbatch // self.half, chunk]
        return home

    def _ran(self, at: int | np.integer) -> _Ran:
        action = Action(
            ActionKind(int(self.kind[at])),
            int(self.microbatch[at]),
            int(self.chunk[at]),
            bool(self.joined[at]),
        )
        return _Ran(action, int(self.device[at]), float(self.start[at]), float(self.end[at]))
