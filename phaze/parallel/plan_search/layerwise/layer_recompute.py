"""What of each block runs again, chosen by an exact dynamic program over the memory of every device.

A block keeps all it saves, recomputes as a whole from its input, layer by layer, or in one of its layers alone: an MLP
frees more bytes for a second than the attention beside it. Devices choose each for itself, since none gains by what
another recomputes: least seconds of backward within what memory is left (`solvers.layerwise`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from typing import NamedTuple

import numpy as np

from phaze.arrays import Flags, Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import NOTHING, LayerRun, ParallelPlan, changed_plan
from phaze.parallel.pipelines.in_flight import in_flight_peak
from phaze.parallel.pipelines.pipeline_schedule import chunks_of
from phaze.parallel.plan_search.fitted_pipelines import FittedPipeline
from phaze.parallel.plan_search.plan_lower_bounds import busy_bound_s
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.layer_costs import LayerCosts, LayerPassCosts
from phaze.parallel.training.memory.memory_footprint import ChunkFootprint
from phaze.parallel.training.memory.recomputed_layers import Unit, group_bytes, units_of, ways_again
from phaze.parallel.training.stage_times import ChunkPasses, GroupPasses
from phaze.solvers.layerwise import (
    ChoiceStatus,
    LayerKind,
    LayerProblem,
    choose_counts,
    choose_layers,
)
from phaze.tolerances import BOUND_ROUNDING


class LayerWays(NamedTuple):
    """What of a group may run again: names, seconds of that, bytes that a microbatch keeps, bytes while it runs."""

    names: tuple[str, ...]
    seconds: Floats
    kept_bytes: Floats
    working_bytes: Floats


@dataclass(frozen=True)
class LayerDevice:
    """What the groups of one device may do: `ways` of each, `slots` their chunks' places on it, `repeats` which choose.

    `held` (K, slots): microbatches in flight; `room_bytes`: for what they keep and for what one group takes as it runs.
    """

    ways: tuple[LayerWays, ...]
    slots: Integers
    repeats: tuple[bool, ...]
    held: Integers
    room_bytes: float

    def needs_nothing(self) -> bool:
        """Whether it has room for all that its groups save."""
        return self._fits([0] * len(self.ways))

    def chosen(self) -> tuple[int, ...] | None:
        """The way of every group that adds the fewest seconds and fits; None where none does.

        Exact for one chunk. Of several, whose microbatches in flight peak at different moments, the better of what is
        fastest for the most of every chunk at once, and for the moment with most in flight.
        """
        if self.needs_nothing():
            return (0,) * len(self.ways)
        best, best_s = None, inf
        most, fullest = self.held.max(axis=0), self.held[self.held.sum(axis=1).argmax()]
        for weight in (most,) if np.array_equal(most, fullest) else (most, fullest):
            for choice in self._within(weight, best_s):
                if self._fits(choice) and (seconds := self._seconds(choice)) < best_s:
                    best, best_s = choice, seconds
        return best

    def _within(self, weight: Integers, below_s: float) -> Iterator[tuple[int, ...]]:
        """The fastest choices with so many microbatches (slots,) of each chunk, for each limit of a running group."""
        alike = self._alike(weight)
        limits = {float(w) for places in alike for w in self.ways[places[0]].working_bytes}
        for limit in sorted(limits):
            if limit > self.room_bytes:
                return
            kinds = [self._kind(places, weight, limit) for places in alike]
            if all(np.isfinite(kind.time_s).any() for kind in kinds):
                counts = _counts(kinds, self.room_bytes - limit, below_s, exact=len(self.held[0]) == 1)
                if counts is not None:
                    choice = self._spread(alike, counts)
                    below_s = min(below_s, self._seconds(choice)) if self._fits(choice) else below_s
                    yield choice

    def _alike(self, weight: Integers) -> list[list[int]]:
        """Places of groups that have the same ways, and as many microbatches in flight."""
        found: dict[tuple[int, int, bool], list[int]] = {}
        for place, (ways, many) in enumerate(zip(self.ways, weight[self.slots].tolist(), strict=True)):
            found.setdefault((id(ways), many, self.repeats[place]), []).append(place)
        return list(found.values())

    def _kind(self, places: Sequence[int], weight: Integers, limit: float) -> LayerKind:
        """Groups alike; those that do not repeat keep all they save, and none takes more than a limit as it runs."""
        ways = self.ways[places[0]]
        able = ways.working_bytes <= limit
        if not self.repeats[places[0]]:
            able &= np.arange(len(able)) == 0
        held = ways.kept_bytes * float(weight[self.slots[places[0]]])
        return LayerKind(len(places), np.where(able, ways.seconds, inf), held)

    def _spread(self, alike: Sequence[Sequence[int]], counts: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The way of every group; of those alike the ones that keep least come first."""
        found = [0] * len(self.ways)
        for places, row in zip(alike, counts, strict=True):
            kept = self.ways[places[0]].kept_bytes
            taken = [way for way, count in enumerate(row) for _ in range(count)]
            for place, way in zip(places, sorted(taken, key=lambda one: float(kept[one])), strict=True):
                found[place] = way
        return tuple(found)

    def _fits(self, choice: Sequence[int]) -> bool:
        each = zip(self.ways, choice, strict=True)
        kept, working = np.array([(one.kept_bytes[way], one.working_bytes[way]) for one, way in each]).T
        slots = np.bincount(self.slots, weights=kept, minlength=self.held.shape[1])
        return float((self.held * slots).sum(axis=1).max() + working.max()) <= self.room_bytes

    def _seconds(self, choice: Sequence[int]) -> float:
        return sum(float(one.seconds[way]) for one, way in zip(self.ways, choice, strict=True))


@dataclass(frozen=True)
class LayerRecompute:
    """Recompute of single layers in plans of one estimator, within the capacity of every device."""

    estimator: Estimator
    capacity_bytes: float
    _kept: dict[Hashable, object] = field(default_factory=dict)

    def fitted(self, plan: ParallelPlan) -> ParallelPlan | None:
        """The plan with what runs again on every device; None where it fits as it is, does not fit, or has two copies.

        Of groups alike on a device those that free most come first, so that runs are long.
        """
        if plan.schedule.weight_copies > 1:
            return None
        division, own = self.estimator.division(plan), self.own(plan)
        names = [NOTHING] * len(division.groups)
        for device, chunks in enumerate(own.tolist()):
            groups = [g for c in chunks for g in range(division.chunks[c][0], division.chunks[c][1] + 1)]
            one = self.device(plan, division, chunks, device, float(self.rooms(plan)[device]))
            choice = self.chosen(one)
            if choice is None:
                return None
            for group, ways, way in zip(groups, one.ways, choice, strict=True):
                names[group] = ways.names[way]
        body = [name for name, repeats in zip(names, division.body, strict=True) if repeats]
        runs = tuple(LayerRun(len(list(run)), name) for name, run in groupby(body))
        if all(run.again == NOTHING for run in runs):
            return None
        again = np.array([name != NOTHING for name in names])
        counts = np.add.reduceat(again.astype(np.int64), division.first_groups)
        return changed_plan(plan, recomputed=tuple(counts.tolist()), layers=runs)

    def bound_s(self, fit: FittedPipeline, plan: ParallelPlan) -> float:
        """Lower bound of the pipelines of a plan that lacks so many bytes on each device, whatever runs again.

        Every byte is freed at the most that any layer frees in a second. Of devices with several chunks nothing is
        known of what runs ahead of others.
        """
        best = self.most_freed(plan)
        held = in_flight_peak(plan.schedule, plan.pipeline_parallel, self.microbatches(plan), plan.chunks)
        lost = 1 + self.estimator.framework.fragmentation
        most = best * lost * held.max(axis=(1, 2))
        short = np.maximum(fit.short_bytes, 0.0)
        again_s = np.divide(short, most, out=np.zeros_like(short), where=most > 0)
        own = self.own(plan)
        if own.shape[1] == 1:
            return self._busy_s(plan, again_s)
        forward_s, turned_s = self._passes(plan).passes_s
        each = self.microbatches(plan) // plan.schedule.weight_copies
        work = (forward_s + turned_s)[0, own].sum(axis=1) + again_s
        return float(each * work.max()) * (1 - BOUND_ROUNDING)

    def chosen_bound_s(self, plan: ParallelPlan) -> float:
        """Lower bound of the pipelines of a plan whose layers are chosen, without exchanges of ZeRO."""
        division, costs = self.estimator.division(plan), self.estimator.layer_costs(plan)
        told = iter([run.again for run in plan.layers for _ in range(run.blocks)])
        seconds = np.zeros(len(division.groups))
        for group, (span, repeats) in enumerate(zip(division.groups, division.body, strict=True)):
            if repeats:
                ways = self.ways(costs, span)
                seconds[group] = ways.seconds[ways.names.index(next(told))]
        return self._busy_s(plan, np.add.reduceat(seconds, division.first_groups))

    def _busy_s(self, plan: ParallelPlan, again_s: Floats) -> float:
        """Bound where every chunk (C,) takes so long to run forward again."""
        e, passes = self.estimator, self._passes(plan)
        device_s = passes.device_s.copy()
        device_s[1] = again_s
        longer = ChunkPasses(device_s, passes.launches_s, passes.weight_s, e.framework)
        counts = np.array([e.microbatches(plan)])
        found = busy_bound_s(plan.schedule, plan.pipeline_parallel, longer, counts)
        return float(found[0]) * (1 - BOUND_ROUNDING)

    def _passes(self, plan: ParallelPlan) -> ChunkPasses:
        """Passes of every chunk, (1, C), where nothing runs again."""
        e, division = self.estimator, self.estimator.division(plan)
        none = np.zeros((1, len(division.groups)), dtype=np.bool_)
        return GroupPasses(e.passes(plan)[None]).chunks(division.first_groups[None], none, e.framework)

    # -- devices ---------------------------------------------------------------------------------------------

    def chosen(self, one: LayerDevice) -> tuple[int, ...] | None:
        """The choice of a device; of devices alike once."""
        key = "chosen", tuple(map(id, one.ways)), one.slots.tobytes(), one.held.tobytes(), one.room_bytes
        if key not in self._kept:
            self._kept[key] = one.chosen()
        found = self._kept[key]
        assert found is None or isinstance(found, tuple)
        return found

    def device(
        self, plan: ParallelPlan, division: Division, chunks: Sequence[int], device: int, room_bytes: float
    ) -> LayerDevice:
        """The groups of a device that has so much room for what they keep and for what one takes as it runs."""
        e, costs = self.estimator, self.estimator.layer_costs(plan)
        spans = [division.chunks[c] for c in chunks]
        groups = [g for first, last in spans for g in range(first, last + 1)]
        slots = np.repeat(np.arange(len(chunks)), [last + 1 - first for first, last in spans])
        held = in_flight_peak(plan.schedule, plan.pipeline_parallel, self.microbatches(plan), plan.chunks)
        return LayerDevice(
            tuple(self.ways(costs, division.groups[g]) for g in groups),
            slots,
            tuple(division.body[g] for g in groups),
            held[device],
            room_bytes / (1 + e.framework.fragmentation),
        )

    def rooms(self, plan: ParallelPlan, sharded: Flags | None = None) -> Floats:
        """Bytes of every device, (p,), for what is kept of microbatches and for the group that runs.

        With weights of some groups `sharded` (..., G), (..., p).
        """
        key = "rooms", plan, None if sharded is None else sharded.tobytes()
        if key not in self._kept:
            e, division, own = self.estimator, self.estimator.division(plan), self.own(plan)
            none = np.zeros(len(division.groups), dtype=np.bool_)
            footprint = ChunkFootprint.of(e.memory_footprint(plan), division, none)
            lost = 1 + e.framework.fragmentation
            scores = lost * e.framework.score_copies * footprint.on_devices("scores_bytes", own)
            memory = e.memory_of(plan, footprint)
            if sharded is not None:
                memory = replace(memory, sharded=e.layouts.sharded(plan, sharded))
            self._kept[key] = self.capacity_bytes - memory.fixed_bytes(own) - scores
        found = self._kept[key]
        assert isinstance(found, np.ndarray)
        return found

    def ways(self, costs: LayerCosts, span: Unit) -> LayerWays:
        """What of a group of layers may run again; the same for all groups of the same layers under the same names."""
        chain = costs.chain
        names = chain.names[span[0] : span[1] + 1]
        known = ways_again(names)
        key = "ways", id(costs), chain.index[span[0] : span[1] + 1], known
        if key not in self._kept:
            units = [units_of(names, one, span[0]) for one in known]
            held = np.array([group_bytes(chain, span, some) for some in units])
            alone = max(chain.layers[u].working_bytes for u in chain.index[span[0] : span[1] + 1])
            seconds = np.array([self._again_s(costs, some) for some in units])
            self._kept[key] = costs, LayerWays(known, seconds, held[:, 0], held[:, 1] + alone)
        found = self._kept[key]
        assert isinstance(found, tuple)
        ways: LayerWays = found[1]
        return ways

    def _again_s(self, costs: LayerCosts, units: Sequence[Unit]) -> float:
        """Seconds of a microbatch on the device for layers that run again."""
        index, found = costs.chain.index, 0.0
        for first, last in units:
            found += sum(self._pass_s(costs.recomputation, index[at]) for at in range(first, last))
            found += self._pass_s(costs.ending, index[last])
        return found

    def _pass_s(self, side: LayerPassCosts, layer: int) -> float:
        framework = self.estimator.framework
        computing = side.kernels_s[layer] * framework.stretch + framework.interference * side.hidden_s[layer]
        return float(computing + sum(one[layer] for one in side.exposed_s.values()))

    def most_freed(self, plan: ParallelPlan) -> float:
        """Bytes of a microbatch that any group frees in a second, at most; infinite where some cost nothing."""
        costs, division = self.estimator.layer_costs(plan), self.estimator.division(plan)
        key = "freed", id(costs), division.groups, division.body
        if key not in self._kept:
            spans = [span for span, repeats in zip(division.groups, division.body, strict=True) if repeats]
            each = {id(one): one for one in (self.ways(costs, span) for span in spans)}
            self._kept[key] = max(_freed(one) for one in each.values())
        found = self._kept[key]
        assert isinstance(found, float)
        return found

    def own(self, plan: ParallelPlan) -> Integers:
        """Chunks of every device, (p, slots)."""
        found: Integers = chunks_of(plan.schedule, plan.pipeline_parallel, plan.chunks)
        return found

    def microbatches(self, plan: ParallelPlan) -> int:
        """Microbatches that each pipeline runs."""
        return self.estimator.microbatches(plan)


def _freed(ways: LayerWays) -> float:
    """Most bytes that a group frees in a second; infinite where that costs nothing."""
    freed = np.maximum(ways.kept_bytes[0] - ways.kept_bytes[1:], 0.0)
    rates = np.full(len(freed), inf)
    np.divide(freed, ways.seconds[1:], out=rates, where=ways.seconds[1:] > 0)
    return float(np.where(freed > 0, rates, 0.0).max(initial=0.0))


def _counts(
    kinds: Sequence[LayerKind], limit_bytes: float, below_s: float, *, exact: bool
) -> tuple[tuple[int, ...], ...] | None:
    """Counts of every way by kind, of the fastest choice within a limit; None where none is below so many seconds.

    Where too many counts are close and it is to be `exact`, the dynamic program over layers decides.
    """
    found = choose_counts(kinds, limit_bytes, below_s)
    if found.proven or not exact:
        return found.counts
    rows = np.repeat(np.arange(len(kinds)), [kind.count for kind in kinds])
    most = max(len(kind.time_s) for kind in kinds)
    time_s, held = np.full((len(kinds), most), inf), np.zeros((len(kinds), most))
    for row, kind in enumerate(kinds):
        time_s[row, : len(kind.time_s)], held[row, : len(kind.time_s)] = kind.time_s, kind.memory_bytes
    problem = LayerProblem(time_s[rows], held[rows], np.zeros((len(rows), most, most)), limit_bytes)
    result = choose_layers(problem)
    if result.status is ChoiceStatus.INFEASIBLE or result.time_s >= below_s:
        return None
    chosen = np.array(result.strategies)
    each = (np.bincount(chosen[rows == row], minlength=len(kind.time_s)) for row, kind in enumerate(kinds))
    return tuple(tuple(row.tolist()) for row in each)
