"""Independent check of a timeline: every rule of a pipeline, looked at action by action, without the simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from phaze.placement.pipelines.chunks import Chunks
from phaze.placement.pipelines.layout import device_of
from phaze.placement.pipelines.order import Action, Kind
from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.pipelines.timeline import Timeline

TOLERANCE = 1e-9
"""Share of the makespan that counts as rounding."""


class TimelineError(Exception):
    """A timeline that breaks a rule: a defect of what made it."""


class _Ran(NamedTuple):
    """An action with its device and times."""

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
    """The rules, one method each."""

    def __init__(
        self, timeline: Timeline, schedule: Schedule, microbatches: int, stages: int, chunks: Chunks
    ) -> None:
        self.lines = [list(line) for line in _lines(timeline)]
        self.chunks, self.last = chunks, chunks.count - 1
        self.microbatches = microbatches
        self.half = microbatches // schedule.weight_copies
        self.device = device_of(schedule, stages, chunks.per_device(stages))
        self.slack = TOLERANCE * max((ran.end for line in self.lines for ran in line), default=0.0)
        self.forward = {(ran.action.microbatch, ran.action.chunk): ran for ran in self._of(Kind.FORWARD)}
        backward = self._of(Kind.BACKWARD, Kind.INPUT_GRADIENT)
        self.backward = {(ran.action.microbatch, ran.action.chunk): ran for ran in backward}

    def _of(self, *kinds: Kind) -> list[_Ran]:
        return [ran for line in self.lines for ran in line if ran.action.kind in kinds]

    def presence(self) -> None:
        """Every microbatch passes every chunk once: forward, input gradient and weight gradient."""
        everything = {(k, c) for k in range(self.microbatches) for c in range(self.last + 1)}
        for what, kinds in (
            ("forward pass", (Kind.FORWARD,)),
            ("input gradient", (Kind.BACKWARD, Kind.INPUT_GRADIENT)),
            ("weight gradient", (Kind.BACKWARD, Kind.WEIGHT_GRADIENT)),
        ):
            times = Counter((ran.action.microbatch, ran.action.chunk) for ran in self._of(*kinds))
            for place in sorted(everything ^ times.keys()):
                raise TimelineError(f"{what} {place} (microbatch, chunk) is {_missing(place in everything)}")
            for place, count in times.items():
                _require(count == 1, f"{what} {place} (microbatch, chunk) runs {count} times")

    def durations(self) -> None:
        """Every action takes its time; those that run as one take that of a pair."""
        seconds = {
            Kind.FORWARD: self.chunks.forward_s,
            Kind.BACKWARD: self.chunks.backward_s,
            Kind.INPUT_GRADIENT: self.chunks.input_gradient_s,
            Kind.WEIGHT_GRADIENT: self.chunks.weight_gradient_s,
        }
        for group in self._groups():
            kind, _, chunk, _ = group[0].action
            expected = float(seconds[kind][chunk])
            if len(group) > 1:
                kinds, turn = [ran.action.kind for ran in group], group[1].action.chunk
                pair = kinds == [Kind.FORWARD, Kind.BACKWARD] and turn == self.last - chunk
                _require(pair, f"{group} are no pair that may run as one")
                expected = float(self.chunks.pairs_s[chunk])
            for ran in group:
                _require(ran.start == group[0].start, f"{ran} does not start with the action it is joined to")
                took = ran.end - ran.start
                _require(abs(took - expected) <= self.slack, f"{ran} takes {took} s, not {expected}")

    def devices(self) -> None:
        """Every device runs its own chunks, one action at a time."""
        for group in self._groups():
            for ran in group:
                home = self._home(ran.action.microbatch, ran.action.chunk)
                _require(ran.device == home, f"{ran} belongs on device {home}")
        for before, after in pairwise(self._groups()):
            if before[0].device == after[0].device:
                pause = sum(self._sends(ran.action) for ran in before) if self.chunks.blocking else 0.0
                late = after[0].start - before[0].end - pause
                _require(late >= -self.slack, f"{after[0]} starts before {before[0]} is over and sent")

    def inputs(self) -> None:
        """No action starts before what it needs is there; a receiver that is blocked was free for the transfer."""
        free = dict.fromkeys(range(len(self.lines)), 0.0)
        for group in self._groups():
            device, arrived, ways = group[0].device, free[group[0].device], 0.0
            for ran in group:
                source, way = self._source(ran.action)
                ended = 0.0 if source is None else source.end
                arrived = max(arrived, ended if self.chunks.blocking else ended + way)
                ways += way if self.chunks.blocking else 0.0
            early = group[0].start - arrived - ways
            _require(early >= -self.slack, f"{group[0]} starts before its input is there")
            free[device] = group[0].end

    def _groups(self) -> Iterator[list[_Ran]]:
        """Actions that run as one, device by device."""
        for line in self.lines:
            group: list[_Ran] = []
            for ran in line:
                if group and not ran.action.joined:
                    yield group
                    group = []
                group.append(ran)
            if group:
                yield group

    def _source(self, action: Action) -> tuple[_Ran | None, float]:
        """The action that makes the input of this one, and the transfer between them."""
        kind, k, c, _ = action
        if kind is Kind.FORWARD:
            return (self.forward[k, c - 1], self._way(k, c - 1)) if c > 0 else (None, 0.0)
        if kind is Kind.WEIGHT_GRADIENT:
            return self.backward[k, c], 0.0
        if c == self.last:
            return self.forward[k, c], 0.0
        return self.backward[k, c + 1], self._way(k, c)

    def _sends(self, action: Action) -> float:
        kind, k, c, _ = action
        if kind is Kind.FORWARD:
            return self._way(k, c) if c < self.last else 0.0
        return self._way(k, c - 1) if c > 0 and kind is not Kind.WEIGHT_GRADIENT else 0.0

    def _way(self, microbatch: int, chunk: int) -> float:
        """Transfer between this chunk and the next."""
        stays = self._home(microbatch, chunk) == self._home(microbatch, chunk + 1)
        return 0.0 if stays else float(self.chunks.transfer_s[chunk])

    def _home(self, microbatch: int, chunk: int) -> int:
        return int(self.device[microbatch // self.half, chunk])


def _lines(timeline: Timeline) -> Iterator[Iterator[_Ran]]:
    for device, order in enumerate(timeline.orders):
        starts, ends = timeline.starts_s[device].tolist(), timeline.ends_s[device].tolist()
        yield map(_Ran, order, [device] * len(order), starts, ends)


def _missing(expected: bool) -> str:
    return "missing" if expected else "not part of the work"


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise TimelineError(otherwise)
