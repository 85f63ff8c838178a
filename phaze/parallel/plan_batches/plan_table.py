"""Plans of one shape side by side: what they exchange and hold, whatever the memory and the architecture.

Arrays have one entry for every plan, or for every device of every plan in turn. Devices that hold the same
layers are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Integers, Rows
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import ParallelPlan, RankOrder, Zero, changed_plan
from phaze.parallel.pipelines.pipeline_schedule import Schedule, chunks_of
from phaze.parallel.plan_batches.chunk_places import ChunkPlaces
from phaze.parallel.plan_batches.joined_places import JoinedPlaces
from phaze.parallel.plan_batches.plan_list import PlanList
from phaze.parallel.plan_batches.ragged import Ragged
from phaze.parallel.plan_batches.shape_options import ShapeOptions
from phaze.parallel.plan_batches.table_arrays import first_of, product_of, ranks_among_equals, widest
from phaze.parallel.training.exchanges.communication import Communication
from phaze.parallel.training.exchanges.gradient_sync import DeviceParameters, GradientSyncWork, overlap_window
from phaze.parallel.training.memory.memory_footprint import ChunkFootprint, GroupFootprint, ranks_of
from phaze.parallel.training.stage_times import ZeroExchanges, ZeroTraffic, zero_traffic
from phaze.solvers.looks import Look


@dataclass(frozen=True)
class PlanTable:
    """Plans (S,) of one shape on architectures whose links have one bandwidth, capacities aside.

    Each is to choose what ranks divide and which of them are neighbours (V). Of those with equally many stages and
    replicas (Q) exchanges are the same but for the layers of a device.
    """

    options: ShapeOptions
    link_bytes_per_s: float
    plans: PlanList

    @classmethod
    def of(cls, options: ShapeOptions, link_bytes_per_s: float) -> PlanTable:
        """Table of all that the plan space allows for a shape, by depth."""
        every = (run for depth in options.depths for run in options.runs(depth))
        return cls(options, link_bytes_per_s, PlanList.of(every))

    def take(self, rows: Rows) -> PlanTable:
        """Some of the plans."""
        return PlanTable(self.options, self.link_bytes_per_s, self.plans.take(rows))

    @cached_property
    def frugal(self) -> bool:
        """Whether as few blocks recompute as memory asks for; otherwise all or none."""
        s = self.options.shape
        return s.recompute is Recompute.FULL and s.recomputed == 0

    # -- plans, and what of them is alike ---------------------------------------------------------------

    @cached_property
    def _alike(self) -> tuple[list[int], Rows]:
        """The first run of every number of stages and replicas, (Q,), and which each has, (R,)."""
        return first_of(self.plans.runs, lambda s: (s.pipeline_parallel, s.data_parallel))

    @cached_property
    def alike(self) -> tuple[list[ParallelPlan], Rows]:
        """A pipeline of every number of stages and replicas, (Q,), and which each plan has, (S,)."""
        first, which = self._alike
        return [self.plans.runs[at] for at in first], which[self.plans.run]

    @cached_property
    def _microbatches(self) -> Integers:
        """Microbatches of one pipeline, (Q,)."""
        return np.array([self.options.layouts.microbatches(s) for s in self.alike[0]])

    @cached_property
    def each(self) -> Floats:
        """Microbatches of every copy of the model, (S,)."""
        copies = np.array([s.schedule.weight_copies for s in self.plans.runs])
        found: Floats = (self._microbatches[self._alike[1]] // copies).astype(np.float64)
        return found[self.plans.run]

    @cached_property
    def turned(self) -> Floats:
        """1 where gradients of a device have to come through those before it, (S,); 0 where backward is split."""
        each = (s.schedule for s in self.plans.runs)
        found = np.array([float(not (one.splits_backward or one.forward_only)) for one in each])
        return found[self.plans.run]

    @cached_property
    def choices(self) -> tuple[list[tuple[Zero, RankOrder]], Flags]:
        """ZeRO stages with rank orders, (V,), and where there is the choice, (Q, V)."""
        each = [list(product(*self.options.space.choices(s))) for s in self.alike[0]]
        every = sorted({choice for some in each for choice in some}, key=max(each, key=len).index)
        return every, np.array([[choice in some for choice in every] for some in each])

    @cached_property
    def zeros(self) -> tuple[list[Zero], Rows]:
        """ZeRO stages, (Z,), and which of them is part of every choice, (V,)."""
        each = [zero for zero, _ in self.choices[0]]
        every = list(dict.fromkeys(each))
        return every, np.array([every.index(zero) for zero in each])

    @cached_property
    def placed(self) -> tuple[JoinedPlaces, Rows, Flags, Rows]:
        """Places (E,), that of each plan, (S,); whether the first device has both ends of the model, (E,).

        Last, which stages and replicas it goes with, (E,).
        """
        plans = self.plans
        first, which = first_of(
            plans.runs, lambda s: (_layout(s.schedule), s.pipeline_parallel, s.data_parallel, s.chunks)
        )
        counts = np.array([len(plans.cuts[at]) for at in first])
        start = np.cumsum(counts) - counts
        used, mine = np.unique((start[which])[plans.run] + plans.cut, return_inverse=True)
        owner = np.repeat(np.array(first), counts)[used]
        joined = np.array([s.joins_ends for s in plans.runs])[owner]
        return self._places(first).take(used), mine.ravel(), joined, self._alike[1][owner]

    def _places(self, runs: Sequence[int]) -> JoinedPlaces:
        """Places of some runs in each of their cuts; shared by all shapes with these layers and pipelines."""
        each = [(self.plans.runs[at], self.plans.cuts[at]) for at in runs]
        alike = tuple((_layout(s.schedule), s.pipeline_parallel, s.chunks, id(cuts)) for s, cuts in each)
        key = "places", self.options.undivided.index, self.options.shape.grain, alike
        every = (changed_plan(s, stages=stages) for s, cuts in each for stages in cuts)
        return self.options.layouts.once(key, lambda: JoinedPlaces(tuple(map(self._place, every))))

    def _place(self, s: ParallelPlan) -> ChunkPlaces:
        """Shared by all shapes with these layers."""
        layouts, (_, kinds) = self.options.layouts, self.options.kinds
        key = "place", self.options.undivided.index, s.grain, s.parts, s.chunks, s.stages, _layout(s.schedule)
        own = partial(chunks_of, s.schedule, s.pipeline_parallel, s.chunks)
        found: ChunkPlaces = layouts.once(key, lambda: ChunkPlaces(layouts.division(s), kinds, own()))
        return found

    def place(self, row: int) -> ChunkPlaces:
        """Places of the chunks of a plan."""
        places, which, *_ = self.placed
        return places.each[int(which[row])]

    # -- devices ---------------------------------------------------------------------------------------------

    @cached_property
    def devices(self) -> Ragged:
        """Devices of every plan."""
        places, which, *_ = self.placed
        return Ragged.of(places.devices.counts[which])

    @cached_property
    def device(self) -> Rows:
        """The device of its place that every device of every plan is."""
        starts = self.placed_at[self.placed[1]]
        return starts[self.devices.owner] + self.devices.within

    @property
    def placed_at(self) -> Rows:
        """The first device of every place among all of them, (E,)."""
        return self.placed[0].devices.start

    @property
    def bounding(self) -> Ragged:
        """Devices of every place that bounds are made of."""
        return self.placed[0].bounding

    def joined(self, name: str) -> NDArray[Any]:
        """An array of all devices of all places, or of all their levels of recompute, one after the other."""
        return self.placed[0].joined(name)

    @property
    def work(self) -> tuple[Floats, Floats]:
        """Groups of every kind on all devices of places, and ahead of them, (D, K) each."""
        return self.placed[0].work

    @cached_property
    def _sorts(self) -> tuple[Floats, Flags, Flags, Rows, Rows]:
        """Distinct devices with equally many stages and replicas: groups of every kind (X, K), ends, joined ends.

        Then what stages and replicas they go with, (X,), and which of them every device of places is, (D,).
        """
        places, _, joined, alike = self.placed
        mine, groups, end, which = places.sorts
        columns = end[:, None], joined[mine.owner, None], alike[mine.owner, None]
        found, same = np.unique(np.concatenate([groups, *columns], axis=1), axis=0, return_inverse=True)
        ends, both, q = found[:, -3] > 0, found[:, -2] > 0, found[:, -1].astype(np.intp)
        return found[:, :-3], ends, both, q, same.ravel()[which]

    @cached_property
    def _first_groups(self) -> Rows:
        """The first group of every kind, (K,)."""
        return np.unique(self.options.kinds[1], return_index=True)[1]

    def _with_ends(self, *, joined: bool) -> ParallelPlan:
        """A plan whose first device has both ends of the model, or not."""
        return next(s for s in self.plans.runs if s.joins_ends is joined)

    # -- exchanges -------------------------------------------------------------------------------------------

    @cached_property
    def _choosing(self) -> list[ParallelPlan]:
        """The first plan of each number of stages and replicas under every choice, (Q V,)."""
        return [changed_plan(s, zero=z, order=o) for s in self.alike[0] for z, o in self.choices[0]]

    @cached_property
    def _exchanges(self) -> Communication:
        return self.options.layouts.exchanges(self.link_bytes_per_s, *self._choosing)

    @cached_property
    def _gradient_sync(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Exchanges and parameters stepped after the last microbatch on distinct devices, (X, V) each.

        Seconds that gradients, weights, and tied parameters take, and parameters that are stepped.
        """
        layouts, (rows, ends, both, q, _), v = self.options.layouts, self._sorts, len(self.choices[0])
        place = (
            np.arange(len(q)) - np.searchsorted(q, q) if (np.diff(q) >= 0).all() else ranks_among_equals(q)
        )
        held = np.zeros((5, len(self.alike[0]), place.max() + 1))
        for joined in np.unique(both).tolist():
            sizes, mine = layouts.sizes(self._with_ends(joined=joined)), both == joined
            distinct, kind = sizes.sizes(self.options.shape.grain)
            every, experts, whole = distinct[:, kind[self._first_groups]]
            each = np.stack([every - experts - whole, experts, whole, np.ones_like(every)])
            held[:4, q[mine], place[mine]] = each @ rows[mine].T
            held[4, q[mine], place[mine]] = sizes.tied_parameters * ends[mine]
        shared, expert, kept, groups, tied = np.repeat(held, v, axis=1)
        counts = np.repeat(self._microbatches, v).tolist()
        work = GradientSyncWork.of(
            DeviceParameters(shared, expert, kept, groups, tied),
            self._exchanges,
            layouts.framework,
            layouts.wire_bytes,
            counts,
        )
        found = [
            some.reshape(-1, v, held.shape[2])[q, :, place]
            for some in (work.reduce_s, work.gather_s, work.tie_s, work.stepped)
        ]
        return found[0], found[1], found[2], found[3]

    @cached_property
    def gradient_sync(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """The same on all devices of places, (D, V) each, and how many groups of layers these have, (D,)."""
        (reduce_s, gather_s, tie_s, stepped), (rows, *_, which) = self._gradient_sync, self._sorts
        pieces = np.maximum(rows.sum(axis=1), 1)
        return reduce_s[which], gather_s[which], tie_s[which], stepped[which], pieces[which]

    @cached_property
    def window(self) -> Floats:
        """Passes of one microbatch that exchanges after the last one have to hide behind, (S,)."""
        counts = self._microbatches[self._alike[1]].tolist()
        each = [overlap_window(s, m) for s, m in zip(self.plans.runs, counts, strict=True)]
        return np.array(each)[self.plans.run]

    @cached_property
    def last(self) -> tuple[Floats, Floats]:
        """Lower bound of the gradient synchronisation, (E, V) each: parameters stepped, and seconds of exchanges.

        Of the device of every place that exchanges longest.
        """
        framework, (reduce_s, gather_s, tie_s, stepped, pieces) = (
            self.options.layouts.framework,
            self.gradient_sync,
        )
        shown = reduce_s / (pieces[:, None] if framework.hides_reduction else 1)
        shown = shown + gather_s / (pieces[:, None] if framework.hides_gathers else 1) + tie_s
        at = self.placed[0].devices.largest(shown)
        columns = np.arange(shown.shape[1])
        return stepped[at, columns] * framework.optimizer_stretch, shown[at, columns]

    @cached_property
    def _moved(self) -> Floats:
        """Exchanges of ZeRO in passes of a group of each kind, s, (2, 4, Q, V, K); rows: `PipelineCommunication.moved`.

        First where ends are not joined, then where they are.
        """
        layouts, each = self.options.layouts, self._choosing
        both = [zero_traffic(s, layouts.framework, layouts.wire_bytes) for s in each]
        found = np.zeros((2, 4, len(each), len(self._first_groups)))
        busy = [v for v, one in enumerate(both) if one != (ZeroTraffic(), ZeroTraffic())]
        for joined in np.unique(self.placed[2]).tolist() if busy else ():
            exchanges = layouts.exchanges(self.link_bytes_per_s, *(each[v] for v in busy))
            sizes, which = layouts.sizes(self._with_ends(joined=joined)).sizes(self.options.shape.grain)
            moving = ZeroExchanges(sizes, which[self._first_groups], exchanges, layouts.framework)
            for turned in (0, 1):
                for k, some in enumerate(moving.groups_s([both[v][turned] for v in busy])):
                    found[int(joined), 2 * turned + k, busy] = some
        return found.reshape(2, 4, len(self.alike[0]), len(self.choices[0]), -1)

    @cached_property
    def _transfers(self) -> tuple[Floats, tuple[Floats, Floats], Floats]:
        """Distinct tensors between chunks: seconds (Q, V, T), how often all devices of places receive them (D, T).

        With these how many come on the way to a device, and last, which of them are sent in a place, (E, T).
        """
        chain, framework = self.options.chain, self.options.layouts.framework
        sent = np.array([layer.output_bytes for layer in chain.layers], dtype=np.float64)[list(chain.index)]
        places = self.placed[0].each
        each = [sent[place.boundaries] for place in places]
        sizes, which = np.unique(np.concatenate(each), return_inverse=True)
        parts = np.split(which.ravel(), np.cumsum([len(some) for some in each])[:-1])
        one = np.eye(len(sizes))
        forward_only = self.plans.runs[0].schedule.forward_only
        every = [place.arriving if forward_only else place.received for place in places]
        both = every, [place.entered for place in places]
        counts = [
            np.concatenate([place @ one[part] for place, part in zip(some, parts, strict=True)])
            for some in both
        ]
        there = np.stack([one[part].any(axis=0) for part in parts]).astype(np.float64)
        seconds = self._exchanges.transfer_s(sizes, framework.scatters_transfers)
        return seconds.reshape(*self.choices[1].shape, len(sizes)), (counts[0], counts[1]), there

    @cached_property
    def _waits_s(self) -> tuple[Floats, Floats, Floats]:
        """Seconds of transfers on all devices of places, (D, V): those that they wait for in every microbatch.

        Of these, what may come before a device starts, and those on the way to it.
        """
        framework, (*_, alike), owner = (
            self.options.layouts.framework,
            self.placed,
            self.placed[0].devices.owner,
        )
        seconds, (received, entered), sent = self._transfers
        way = np.einsum("dt,dvt->dv", entered, seconds[alike][owner])
        if framework.hides_transfers:
            return np.zeros_like(way), np.zeros_like(way), way
        every = np.einsum("dt,dvt->dv", received, seconds[alike][owner])
        return every, (seconds[alike] * sent[:, None]).max(axis=2, initial=0.0)[owner], way

    def waits_s(self, row: Rows, choice: Rows, at: Rows) -> Floats:
        """Lower bound of what transfers between stages add, (N,), on devices `at` of places, of plans under choices."""
        every, less, way = (some[at, choice] for some in self._waits_s)
        found: Floats = np.maximum(self.each[row] * every - less, 0.0) + (1 + self.turned[row]) * way
        return found

    def exchanging_s(self, row: Rows, choice: Rows, at: Rows) -> tuple[Floats, Floats]:
        """Exchanges of ZeRO beside passes on devices `at` of places, of plans under choices: (2, 2, N) each side.

        First of passes forward, then of those after the loss: on the devices and ahead of them, seconds that nothing
        hides, and of all. Nothing hides those of what is no block, the gather of the block that a pass begins with, and
        the reduction of that which backward ends with (see `weight_prefetch`).
        """
        work = self.work[0][at], self.work[1][at]
        framework, joined = (
            self.options.layouts.framework,
            self.placed[2][self.placed[1][row]].astype(np.intp),
        )
        found = np.zeros((2, 2, 2, len(row)))
        if self._moved.any():
            gather, none, again, reduce = self._moved[joined, :, self.alike[1][row], choice].transpose(
                1, 0, 2
            )
            body = self._body
            shown = gather * (1 - body), reduce * (1 - body)
            every = gather + none, again * body + reduce
            for side, some in enumerate(zip(shown, every, strict=True)):
                for part, groups in enumerate(work):
                    found[side, part] = [np.einsum("nk,nk->n", groups, one) for one in some]
            begin, end = self.joined("begin")[at], self.joined("end")[at]
            found[0, 0, 0] += np.einsum("nk,nk->n", begin, gather)
            found[1, 0, 0] += np.einsum("nk,nk->n", end, again) + np.einsum("nk,nk->n", begin, reduce)
            if not framework.hides_gathers:
                found[:, :, 0] = found[:, :, 1]
        return found[0], found[1]

    @cached_property
    def _body(self) -> Floats:
        """1 for kinds of groups that are blocks, (K,)."""
        return np.array(self.options.division.body, dtype=np.float64)[self._first_groups]

    @cached_property
    def no_less(self) -> Flags:
        """Whether a choice exchanges and steps nowhere more than another one, (Q, V, V)."""
        q, seconds, moved = self._sorts[3], self._transfers[0], self._moved
        order = np.argsort(q, kind="stable")
        first = np.searchsorted(q[order], np.arange(len(self.alike[0])))
        rest = np.concatenate([seconds, *(m for side in moved for m in side)], axis=2)
        found = np.asarray((rest[:, :, None] <= rest[:, None]).all(axis=3))
        for some in self._gradient_sync:
            mine = some[order]
            found = found & np.logical_and.reduceat(mine[:, :, None] <= mine[:, None], first, axis=0)
        return found

    # -- memory ----------------------------------------------------------------------------------------------

    @cached_property
    def _held(self) -> list[tuple[Floats, Integers]]:
        """Microbatches in flight of every plan, as of `ChunkPlaces.in_flight`."""
        return list(self._each_held())

    def count_held(self, look: Look) -> None:
        """Work out, one plan after the other, what takes longest of `level_bytes`; `look` is called between two."""
        for _ in self._each_held():
            look()

    def _each_held(self) -> Iterator[tuple[Floats, Integers]]:
        layouts, (places, which, *_), counts = self.options.layouts, self.placed, self._microbatches.tolist()
        runs = zip(self.plans.runs, self._alike[1].tolist(), strict=True)
        each = [(s.schedule, counts[q], _telling(s, counts[q])) for s, q in runs]
        for run, e in zip(self.plans.run.tolist(), which.tolist(), strict=True):
            place, (schedule, m, sufficient) = places.each[e], each[run]
            key = "in_flight", id(place), schedule, sufficient
            yield layouts.once(key, partial(place.in_flight, schedule, m))

    def _footprint(self, *, joined: bool) -> GroupFootprint:
        """Needs of the first group of every kind, (K,)."""
        return self.options.layouts.memory_footprint(self._with_ends(joined=joined)).take(self._first_groups)

    @cached_property
    def fixed_bytes(self) -> Floats:
        """Bytes that all devices of places need whatever is recomputed, (D, Z)."""
        rows, _, both, q, which = self._sorts
        layouts, zeros = self.options.layouts, self.zeros[0]
        body = self._body
        ranks = np.array([ranks_of(s) for s in self.alike[0]]).T
        found = np.empty((len(rows), len(zeros)))
        for joined in np.unique(both).tolist():
            mine = both == joined
            some = _device_footprint(rows[mine], self._footprint(joined=joined), body)
            own, divided = np.arange(int(mine.sum()))[:, None], tuple(ranks[:, q[mine]])
            for z, zero in enumerate(zeros):
                memory = layouts.memory_of(replace(self._with_ends(joined=joined), zero=zero), some)
                found[mine, z] = replace(memory, divided_by=divided).fixed_bytes(own)
        return found[which]

    @cached_property
    def levels(self) -> Ragged:
        """Levels of recompute of every device of every plan."""
        return Ragged.of(self.joined("levels")[self.device])

    @cached_property
    def level(self) -> Rows:
        """The level of its place that every level of every plan is."""
        starts = Ragged.of(self.joined("levels")).start[self.device]
        return starts[self.levels.owner] + self.levels.within

    @cached_property
    def level_bytes(self) -> Floats:
        """Bytes that devices need besides on every level, all plans one after the other, (L,)."""
        framework, (_, which, joined, _) = self.options.layouts.framework, self.placed
        rows = np.concatenate([some for some, _ in self._held])
        per_level = Ragged.of(np.concatenate([count for _, count in self._held]))
        owner = self.devices.owner[self.levels.owner]
        found = np.empty(len(owner))
        again, device = self.joined("recomputation_device"), self.work[0]
        at, both = self.device[self.levels.owner], joined[which][owner]
        for ends in np.unique(both).tolist():
            n, mine = self._footprint(joined=ends), both == ends
            kept = np.maximum.reduceat(
                product_of(rows, np.concatenate([n.saved_bytes, n.spared_bytes])[:, None])[:, 0],
                per_level.start,
            )
            # Schedules share places: what depends on these alone is worked out once for each.
            working = widest(device, n.working_bytes)[at[mine]]
            redoing = widest(again, n.working_bytes + n.saved_bytes)[self.level[mine]]
            scores = framework.score_copies * (device @ n.scores_bytes)[at[mine]]
            found[mine] = kept[mine] + np.maximum(working, redoing) + scores
        return (1 + framework.fragmentation) * found


def _layout(schedule: Schedule) -> str:
    """Schedules with the same one place chunks alike, and join their ends alike."""
    own = schedule in (Schedule.ZB_V, Schedule.DUALPIPE)
    return schedule.value if own else ""


def _telling(s: ParallelPlan, microbatches: int) -> int:
    """So many microbatches tell how many a device keeps."""
    all_tell = s.schedule in (Schedule.GPIPE, Schedule.BREADTH_FIRST, Schedule.CACHED)
    return microbatches if all_tell else min(microbatches, 4 * s.pipeline_parallel)


def _device_footprint(rows: Floats, footprint: GroupFootprint, body: Floats) -> ChunkFootprint:
    """Needs of devices with so many groups of every kind, (X, K), each like one chunk; none recomputes."""
    return ChunkFootprint(
        shared=rows @ footprint.shared,
        experts=rows @ footprint.experts,
        scaled_bytes=rows @ footprint.scaled_bytes,
        frozen_bytes=rows @ footprint.frozen_bytes,
        replicated=rows @ footprint.replicated,
        kept_bytes=rows @ footprint.saved_bytes,
        away_bytes=np.zeros(len(rows)),
        working_bytes=widest(rows, footprint.working_bytes),
        largest=widest(rows, body * footprint.parameters),
        ends=rows @ ((1 - body) * footprint.parameters),
        scores_bytes=rows @ footprint.scores_bytes,
        widest_bytes=widest(rows, footprint.saved_bytes),
    )
