"""Timeline of one iteration of a plan: slices on the threads of the devices of one pipeline.

One process per device of a pipeline: all replicas and all devices of one tensor-parallel group do the same. Its
threads: the passes of every microbatch, their layers, exchanges and what waits for the host, and, for the first
microbatch, the operators on its cores. A collective that nothing hides stops the cores where the layer's schedule has
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from phaze.parallel.pipelines.action_order import Action, ActionKind
from phaze.parallel.timeline import plan_runs as tail
from phaze.parallel.timeline.plan_operators import PlanOperators, ScheduledLayer
from phaze.parallel.timeline.plan_pieces import KIND_NAMES, Piece, PieceKind, PlanPieces, pieces_of_devices
from phaze.parallel.timeline.plan_runs import Run, closing, runs
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.report.trace.chrome_trace import (
    ALL_CORES,
    BESIDE,
    HOST,
    LAYERS,
    LINK,
    MOST_LAYERS,
    PASSES,
    Slice,
    Stage,
    Trace,
)

_THREADS: Mapping[str, str] = {
    PieceKind.GATHER: LINK,
    PieceKind.REDUCTION: LINK,
    PieceKind.OFFLOAD: HOST,
    PieceKind.HOST: HOST,
    tail.REDUCTION: LINK,
    tail.OPTIMIZER: PASSES,
    tail.GATHER: LINK,
    tail.HOST: HOST,
}
_AT_ONCE = 1e-9  # of a schedule's length; operators that start so close to one another start together


def plan_trace(
    played: ReplayedPlan,
    title: str,
    workload: str,
    layers: Sequence[Sequence[str]] = (),
    designs: Sequence[str] = (),
) -> Trace:
    """The trace of a plan; `layers`, `designs`: those of every stage, where they are to be recorded."""
    s, telling = played.strategy, _Telling(played)
    told = {
        "title": title,
        "workload": workload,
        "iteration_time_s": played.iteration.iteration_s,
        "replicas": s.data_parallel,
        "devices_per_stage": s.width,
        "microbatches_per_replica": played.iteration.microbatches,
    }
    stages = [_stage(played, k, layers, designs) for k in range(s.pipeline_parallel)]
    return Trace(stages, telling.slices(), telling.paths(), told)


def _stage(played: ReplayedPlan, at: int, layers: Sequence[Sequence[str]], designs: Sequence[str]) -> Stage:
    name = f"stage {at + 1}" + (f": {layers[at][0]} .. {layers[at][-1]}" if layers else "")
    return Stage(name, f"{played.strategy.width} x {designs[at]}") if designs else Stage(name)


@dataclass(frozen=True)
class _Telling:
    """A plan recorded slice by slice; on a thread no two overlap, the last ends with the iteration."""

    played: ReplayedPlan

    @cached_property
    def plans(self) -> list[PlanPieces]:
        """Pieces of the passes on every device, in the order of devices."""
        return pieces_of_devices(self.played)

    @cached_property
    def operators(self) -> list[PlanOperators]:
        """The schedules of the layers on every device."""
        known = {id(plan): PlanOperators(plan) for plan in self.plans}
        return [known[id(plan)] for plan in self.plans]

    @cached_property
    def runs(self) -> list[Run]:
        """The passes of all devices."""
        return runs(self.played)

    def slices(self) -> Iterator[Slice]:
        """All of them."""
        told = self._told_in_layers
        for run in self.runs:
            yield self._pass(run)
            for name, start_s, end_s in run.received:
                yield Slice(run.device, LINK, name, "transfer", start_s, end_s, _args(run.actions[0]))
            now_s = run.start_s
            for action in run.actions:
                if action.microbatch < told:
                    yield from self._pieces(run, action, now_s)
                now_s += self.plans[run.device].duration_s(action.kind, action.chunk)
        for one in closing(self.played):
            yield Slice(one.device, _THREADS[one.name], one.name, "rest", one.start_s, one.end_s)

    def paths(self) -> Iterator[Sequence[Slice]]:
        """The passes of every microbatch, through its forward passes and then back."""
        found: dict[int, list[Slice]] = {}
        for run in sorted(self.runs, key=lambda one: one.start_s):
            for action in run.actions:
                if action.kind is not ActionKind.WEIGHT_GRADIENT:
                    found.setdefault(action.microbatch, []).append(self._pass(run))
        yield from found.values()

    @cached_property
    def _told_in_layers(self) -> int:
        """Number of microbatches that are recorded layer by layer: at least the first."""
        first = ((run.device, one) for run in self.runs for one in run.actions if one.microbatch == 0)
        each = sum(len(self.plans[device].pieces(one.kind, one.chunk)) for device, one in first)
        return max(1, MOST_LAYERS // max(1, each))

    def _pass(self, run: Run) -> Slice:
        first = run.actions[0]
        args: dict[str, Any] = {"microbatch": first.microbatch + 1, "part": first.chunk + 1}
        hidden_s = sum(self.plans[run.device].hidden_s(one.kind, one.chunk) for one in run.actions)
        if hidden_s > 0:
            args["exchanges_beside_s"] = hidden_s
        name = " and ".join(f"{KIND_NAMES[one.kind]} {one.microbatch + 1}" for one in run.actions)
        return Slice(run.device, PASSES, name, KIND_NAMES[first.kind], run.start_s, run.end_s, args)

    def _pieces(self, run: Run, action: Action, now_s: float) -> Iterator[Slice]:
        """The pieces of one pass, and the operators of the first microbatch."""
        for piece in self.plans[run.device].pieces(action.kind, action.chunk):
            end_s = min(now_s + piece.duration_s, run.end_s)
            thread = _THREADS.get(piece.what, LAYERS)
            args = _args(action) | self._of_layer(run.device, piece)
            yield Slice(run.device, thread, piece.name, piece.what, now_s, end_s, args)
            if action.microbatch == 0 and (one := self._schedule(run.device, piece)):
                yield from _Laid(run.device, piece, one, now_s, end_s, _args(action)).slices()
            now_s = end_s

    def _of_layer(self, device: int, piece: Piece) -> dict[str, Any]:
        if piece.layer is None:
            return {}
        chain = self.plans[device].layer_costs.chain
        args: dict[str, Any] = {"layer": piece.layer, "kind": chain.layers[chain.index[piece.layer]].kind}
        if piece.exposed_s:
            args["exposed_s"] = {str(parallel): seconds for parallel, seconds in piece.exposed_s.items()}
        return args

    def _schedule(self, device: int, piece: Piece) -> ScheduledLayer | None:
        """The schedule of what a layer runs; None where there are no operators."""
        if piece.layer is None:
            return None
        return self.operators[device].of(self.plans[device].layer_costs.chain.index[piece.layer], piece.side)


def _args(action: Action) -> dict[str, Any]:
    return {"microbatch": action.microbatch + 1, "part": action.chunk + 1, "pass": KIND_NAMES[action.kind]}


@dataclass(frozen=True)
class _Laid:
    """The operators of a piece between two times, and the collectives among them."""

    device: int
    piece: Piece
    scheduled: ScheduledLayer
    start_s: float
    end_s: float
    args: dict[str, Any]

    def slices(self) -> Iterator[Slice]:
        """Operators on the cores that they take; one on all cores has a thread of its own."""
        schedule, result = self.scheduled.schedule, self.scheduled.schedule.result
        for op in schedule.problem.operators:
            if op.id in self.scheduled.collectives:
                continue
            start_s = self._at(result.starts_s[op.id], until=_AT_ONCE)
            end_s = max(start_s, self._at(result.ends_s[op.id], until=-_AT_ONCE))
            threads = (ALL_CORES,) if op.id in result.parallel else result.cores[op.id]
            args = {**self.args, "layer": self.piece.name, "unit": "+".join(op.units)}
            for thread in threads:
                yield Slice(self.device, thread, op.id, "operator", start_s, min(end_s, self.end_s), args)
        yield from self._exposed()
        yield from self._beside()

    @property
    def _factor(self) -> float:
        """Seconds in the plan for one of the schedule: software and memory may stretch it."""
        makespan_s = self.scheduled.schedule.result.makespan_s
        return self.piece.compute_s / makespan_s if makespan_s else 0.0

    @cached_property
    def _stops(self) -> list[tuple[float, str]]:
        """Time in the schedule and name of every collective, in their order."""
        schedule = self.scheduled.schedule
        names = [op.id for op in schedule.problem.operators if op.id in self.scheduled.collectives]
        return sorted(((schedule.result.starts_s[name], name) for name in names), key=lambda stop: stop[0])

    def _at(self, time_s: float, until: float) -> float:
        """A time of the schedule behind all that stops the cores up to then, and so much of its length."""
        schedule, told = self.scheduled.schedule, self.scheduled.collectives
        last_s = time_s + until * schedule.result.makespan_s
        stopped_s = sum(told[name].exposed_s for at_s, name in self._stops if at_s <= last_s)
        return self.start_s + time_s * self._factor + stopped_s

    def _exposed(self) -> Iterator[Slice]:
        """Collectives that nothing hides, one after the other."""
        stopped_s = 0.0
        for at_s, name in self._stops:
            seconds = self.scheduled.collectives[name].exposed_s
            if seconds > 0:
                now_s = self.start_s + at_s * self._factor + stopped_s
                stopped_s += seconds
                yield self._collective(LINK, "exposed", name, now_s, min(now_s + seconds, self.end_s))

    def _beside(self) -> Iterator[Slice]:
        """Collectives beside computation: the model tells how long each takes, not when; one after the other."""
        hidden = [(name, self.scheduled.collectives[name].hidden_s) for _, name in self._stops]
        whole_s = sum(seconds for _, seconds in hidden)
        shown = min(1.0, (self.end_s - self.start_s) / whole_s) if whole_s else 0.0
        now_s = self.start_s
        for name, seconds in hidden:
            if seconds > 0:
                yield self._collective(
                    BESIDE, "hidden", name, now_s, now_s + shown * seconds, takes_s=seconds
                )
                now_s += shown * seconds

    def _collective(
        self, thread: str, category: str, name: str, start_s: float, end_s: float, **told: float
    ) -> Slice:
        args = {**self.args, "layer": self.piece.name, **told}
        return Slice(self.device, thread, name, category, start_s, end_s, args)
