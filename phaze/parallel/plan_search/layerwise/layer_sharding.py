"""Blocks whose weights replicas divide beside others that each keeps whole, with what of each runs again.

Under ZeRO 1 every replica has all weights and gradients; a block that is divided as under ZeRO 3 is gathered for both
passes of every microbatch, and reduced after each. That costs exchanges, saves memory, and hides what otherwise follows
the last microbatch. A device does so for as many of its blocks as pays: every number of them, spread evenly so that the
gather of one hides behind those between, each with the recompute that takes least in the memory it leaves
(`layer_recompute`). Galvatron (arXiv 2211.13878) and OSDP (arXiv 2209.13258) choose so layer by layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import inf
from typing import Any, NamedTuple

import numpy as np

from phaze.arrays import Flags, Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import NOTHING, LayerRun, ParallelPlan, changed_plan
from phaze.parallel.plan_search.fitted_pipelines import FittedPipeline
from phaze.parallel.plan_search.layerwise.layer_recompute import LayerDevice, LayerRecompute, LayerWays
from phaze.parallel.training.exchanges.gradient_sync import GradientSyncWork
from phaze.parallel.training.exchanges.weight_prefetch import Groups
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.stage_times import ZeroExchanges, zero_traffic
from phaze.solvers.layerwise import LayerKind, least_seconds
from phaze.tolerances import BOUND_ROUNDING


class DividedPlan(NamedTuple):
    """A plan that divides some blocks, and a lower bound of its pipeline."""

    plan: ParallelPlan
    bound_s: float


@dataclass(frozen=True)
class LayerSharding:
    """Plans whose devices divide some blocks each; `recompute` tells what runs again in what memory is left."""

    recompute: LayerRecompute
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def bound_s(self, fit: FittedPipeline, plan: ParallelPlan) -> float:
        """Lower bound of the pipelines of a plan that lacks so many bytes on each device while nothing is divided.

        Of every number of blocks that are divided: what is still lacking is freed in the least seconds of the relaxed
        choice of recompute, and exchanges take no less than what no computation can hide. Infinite where nothing fits.
        """
        some = self._sharded(plan)
        return float(some.runs * some.bounds_s(fit.short_bytes).min(axis=0).max())

    def fitted(self, fit: FittedPipeline, plan: ParallelPlan, below_s: float = inf) -> DividedPlan | None:
        """The plan with the blocks that every device divides, and what runs again.

        None where none is divided, nothing fits, or a device has more to do than an iteration is to take.
        """
        some, division = self._sharded(plan), self.recompute.estimator.division(plan)
        names, divided, longest = [NOTHING] * len(division.groups), np.zeros(len(division.groups), bool), 0.0
        bounds_s = some.bounds_s(fit.short_bytes)
        if not all(some.has_room(device) for device in range(len(some.own))):
            return None
        for device in np.argsort(-bounds_s.min(axis=0), kind="stable").tolist():
            found = some.best(device, bounds_s[:, device], below_s)
            if found is None:
                return None
            for group, name in zip(some.groups(device), found.names, strict=True):
                names[group] = name
            divided |= some.masks[found.divided] & some.on(device)
            longest = max(longest, found.pass_s)
        if not divided.any():
            return None
        each = zip(names, divided.tolist(), division.body, strict=True)
        body = [(name, sharded) for name, sharded, repeats in each if repeats]
        runs = tuple(LayerRun(len(list(run)), *kind) for kind, run in groupby(body))
        again = np.array([name != NOTHING for name in names], dtype=np.int64)
        counts = np.add.reduceat(again, division.first_groups)
        whole = changed_plan(plan, recomputed=tuple(counts.tolist()), layers=runs)
        return DividedPlan(whole, some.runs * longest)

    def _sharded(self, plan: ParallelPlan) -> _Sharded:
        """What was asked for last is kept: pipelines are asked for one after the other."""
        last: _Sharded | None = self._kept.get("last")
        if last is None or last.plan != plan:
            last = self._kept["last"] = _Sharded(self.recompute, plan, self._kept)
        return last


class _Frees(NamedTuple):
    """Bytes that recompute on a device frees, ascending, and the least seconds that it takes, (n,) each."""

    bytes_: Floats
    seconds: Floats

    @classmethod
    def of(cls, ways: Sequence[LayerWays], in_flight: float) -> _Frees:
        """Of groups that keep what they save of so many microbatches; what they take as they run is left aside."""
        alike = Counter(map(id, ways))
        known = {id(one): one for one in ways}
        kinds = [
            LayerKind(count, known[one].seconds, in_flight * known[one].kept_bytes)
            for one, count in alike.items()
        ]
        return cls(*least_seconds(kinds))

    def again_s(self, short_bytes: Floats) -> Floats:
        """Least seconds for so many bytes; infinite where there are not as many."""
        found = np.interp(short_bytes, self.bytes_, self.seconds)
        return np.where(short_bytes > self.bytes_[-1] * (1 + BOUND_ROUNDING), inf, found)


class _Chosen(NamedTuple):
    """How many blocks of a device are divided, what of each group runs again, and seconds of its passes."""

    divided: int
    names: tuple[str, ...]
    pass_s: float


@dataclass(frozen=True)
class _Sharded:
    """A plan under ZeRO 1 whose devices each divide 0 .. K - 1 of their blocks, or all that they have."""

    recompute: LayerRecompute
    plan: ParallelPlan
    kept: dict[Hashable, Any]
    syncs: dict[int, GradientSyncWork] = field(default_factory=dict)
    devices: dict[int, LayerDevice] = field(default_factory=dict)

    @cached_property
    def estimator(self) -> Estimator:
        """Times and bytes of plans."""
        return self.recompute.estimator

    @cached_property
    def division(self) -> Division:
        """The chunks of the model."""
        return self.estimator.division(self.plan)

    @cached_property
    def own(self) -> Integers:
        """Chunks of every device, (p, slots)."""
        return self.recompute.own(self.plan)

    @cached_property
    def runs(self) -> int:
        """Microbatches that every device runs."""
        return self.recompute.microbatches(self.plan)

    def groups(self, device: int) -> list[int]:
        """Groups of layers of a device."""
        spans = [self.division.chunks[chunk] for chunk in self.own[device].tolist()]
        return [group for first, last in spans for group in range(first, last + 1)]

    def on(self, device: int) -> Flags:
        """Whether groups (G,) lie on a device."""
        found = np.zeros(len(self.division.groups), dtype=np.bool_)
        found[self.groups(device)] = True
        return found

    @cached_property
    def masks(self) -> Flags:
        """Groups that are divided where every device divides so many, (K, G), spread over its blocks."""
        key = "masks", id(self.division), self.own.tobytes()
        if key not in self.kept:
            self.kept[key] = self.division, self._masks()
        found: Flags = self.kept[key][1]
        return found

    def _masks(self) -> Flags:
        body = [[g for g in self.groups(d) if self.division.body[g]] for d in range(len(self.own))]
        most = max(map(len, body))
        found = np.zeros((most + 1, len(self.division.groups)), dtype=np.bool_)
        for blocks in body:
            for count in range(1, most + 1):
                found[count, [blocks[place] for place in spread_places(len(blocks), count)]] = True
        return found

    @cached_property
    def room_bytes(self) -> Floats:
        """Bytes of every device for what is kept of microbatches and for the group that runs, (K, p)."""
        return self.recompute.rooms(self.plan, self.masks)

    @cached_property
    def _moving(self) -> ZeroExchanges:
        costs = self.estimator.layer_costs(self.plan)
        sizes = costs.sizes(self.plan.grain)
        return ZeroExchanges(*sizes, self.estimator.exchanges(self.plan), self.estimator.framework)

    @cached_property
    def _exchanges_s(self) -> tuple[tuple[Floats, Floats], ...]:
        """Gathers and reductions of every group (G,) in forward, and in backward."""
        s = self.plan
        key = "exchanges", s.sharding, s.data_parallel, s.pipeline_parallel, s.order, s.grain, s.joins_ends
        if key not in self.kept:
            e, blocks = self.estimator, sum(self.division.body)
            all_ = changed_plan(s, layers=(LayerRun(blocks, NOTHING, sharded=True),))
            sides = zero_traffic(all_, e.framework, e.rates.wire_bytes)
            each = (self._moving.groups_s([side]) for side in sides)
            self.kept[key] = tuple((gather[0], reduce[0]) for gather, reduce in each)
        found: tuple[tuple[Floats, Floats], ...] = self.kept[key]
        return found

    @cached_property
    def _compute_s(self) -> Floats:
        """Seconds of every group, forward and backward, (2, G), nothing of it run again."""
        found: Floats = self.estimator.passes(self.plan)[[0, 2]]
        return found

    def _devices(self, groups: Floats) -> Floats:
        """Sums over the groups of every device, (..., p)."""
        chunks = np.add.reduceat(groups, self.division.first_groups, axis=-1)
        found: Floats = chunks[..., self.own].sum(axis=-1)
        return found

    def bounds_s(self, short_bytes: Floats) -> Floats:
        """Least seconds of every device for a microbatch, (K, p), that lacks so many bytes (p,) with nothing divided.

        Infinite where it lacks more than all recompute frees.
        """
        short = np.zeros(self.room_bytes.shape)
        if np.isfinite(short_bytes).all():
            short = np.maximum(short_bytes - (self.room_bytes - self.room_bytes[0]), 0.0)
        again_s = np.array(
            [one.again_s(lacking) for one, lacking in zip(self._frees, short.T, strict=True)]
        ).T
        total, longer = np.zeros_like(short), (np.zeros_like(again_s), again_s)
        hides = self.estimator.framework.hides_gathers
        for computing, moving, waiting, more in zip(*self._least_s, longer, strict=True):
            total += np.maximum(computing + more, waiting) if hides else computing + more + moving
        return total

    @cached_property
    def _least_s(self) -> tuple[list[Floats], list[Floats], list[Floats]]:
        """Seconds of computation (p,), of exchanges (K, p), and of both beside each other at least (K, p), each way."""
        found: tuple[list[Floats], list[Floats], list[Floats]] = ([], [], [])
        for compute, (gather, reduce), turned in zip(
            self._compute_s, self._exchanges_s, (False, True), strict=True
        ):
            gathers, reductions = gather * self.masks, reduce * self.masks
            found[0].append(self._devices(compute))
            found[1].append(self._devices(gathers + reductions))
            chunks = self._beside_s(compute, gathers, reductions, turned=turned)
            found[2].append(chunks[:, self.own].sum(axis=-1))
        return found

    def _beside_s(self, compute: Floats, gathers: Floats, reductions: Floats, *, turned: bool) -> Floats:
        """Seconds of every chunk at least, (K, C): whatever runs again, and whatever hides the rest.

        No group of a chunk runs before the gathers up to its own, and the reductions from its own on follow it; all
        exchanges share the wire. Backward the last group comes first.
        """
        first = self.division.first_groups
        ahead_g, behind_g = self._up_to(gathers), self._from(gathers)
        ahead_c, behind_c = self._up_to(compute), self._from(compute)
        latest = ahead_g + behind_c
        if turned:
            latest = np.maximum(behind_g + ahead_c, behind_c + self._up_to(reductions))
        wire = np.add.reduceat(gathers + reductions, first, axis=-1)
        return np.maximum(np.maximum.reduceat(latest * self.masks, first, axis=-1), wire)

    def _up_to(self, groups: Floats) -> Floats:
        """Sums over the groups of a chunk up to each of them, itself included, (..., G)."""
        total = np.cumsum(groups, axis=-1)
        starts = self.division.first_groups
        before = (total - groups)[..., starts]
        found: Floats = total - before[..., self.division.chunk_of_groups]
        return found

    def _from(self, groups: Floats) -> Floats:
        """The same from each of them on."""
        sums = np.add.reduceat(groups, self.division.first_groups, axis=-1)
        return sums[..., self.division.chunk_of_groups] - self._up_to(groups) + groups

    @cached_property
    def _in_flight(self) -> Floats:
        """Most microbatches in flight of any chunk of every device, (p,), with what the allocator loses."""
        found: Floats = self._held.max(axis=(1, 2)) * (1 + self.estimator.framework.fragmentation)
        return found

    @cached_property
    def _held(self) -> Integers:
        return self.estimator.layouts.held(self.plan)

    @cached_property
    def _frees(self) -> list[_Frees]:
        """What recompute frees at most on every device, and the least that takes."""
        found = []
        for device, most in enumerate(self._in_flight.tolist()):
            ways = [self._ways[group] for group in self.groups(device) if self.division.body[group]]
            key = "frees", tuple(map(id, ways)), most
            if key not in self.kept:
                self.kept[key] = ways, _Frees.of(ways, most)
            found.append(self.kept[key][1])
        return found

    @cached_property
    def _ways(self) -> list[LayerWays]:
        """What of every group may run again, (G,)."""
        costs = self.estimator.layer_costs(self.plan)
        key = "ways", id(costs), self.division.groups
        if key not in self.kept:
            self.kept[key] = costs, [self.recompute.ways(costs, span) for span in self.division.groups]
        found: list[LayerWays] = self.kept[key][1]
        return found

    def has_room(self, device: int) -> bool:
        """Whether any recompute fits beside the number of divided blocks that leaves most room."""
        return self._choice(device, int(self.room_bytes[:, device].argmax())) is not None

    def _choice(self, device: int, count: int) -> tuple[int, ...] | None:
        """The way of every group of a device that divides so many blocks; None where none fits."""
        if device not in self.devices:
            own = self.own[device].tolist()
            self.devices[device] = self.recompute.device(self.plan, self.division, own, device, 0.0)
        room = float(self.room_bytes[count, device]) / (1 + self.estimator.framework.fragmentation)
        return self.recompute.chosen(replace(self.devices[device], room_bytes=room))

    def best(self, device: int, bounds_s: Floats, below_s: float) -> _Chosen | None:
        """The number of blocks of a device and the recompute beside it that take least; None where nothing fits.

        `bounds_s` (K,): least seconds of a microbatch of each number; `below_s`: what all of them have to stay below.
        """
        best, best_s = None, below_s
        blocks = sum(self.division.body[group] for group in self.groups(device))
        for count in np.argsort(bounds_s[: blocks + 1], kind="stable").tolist():
            if self.runs * bounds_s[count] >= best_s:
                break
            choice = self._choice(device, count)
            if choice is None:
                continue
            one = self.devices[device]
            again_s = [float(ways.seconds[way]) for ways, way in zip(one.ways, choice, strict=True)]
            pass_s, whole_s = self._seconds(device, count, again_s)
            if whole_s < best_s:
                names = tuple(ways.names[way] for ways, way in zip(one.ways, choice, strict=True))
                best, best_s = _Chosen(count, names, pass_s), whole_s
        return best

    def _seconds(self, device: int, count: int, again_s: Sequence[float]) -> tuple[float, float]:
        """Seconds of a device for a microbatch, and for an iteration with what follows, that divides so many blocks."""
        mine, first = self._places(device)
        mask, compute = self.masks[count, mine], self._compute_s[:, mine]
        compute[1] += again_s
        sides = []
        for turned, (seconds, exchanges) in enumerate(zip(compute, self._exchanges_s, strict=True)):
            gather, reduce = ((values[mine] * mask)[None] for values in exchanges)
            groups = Groups(seconds[None], gather, reduce, mask, first[None])
            shown_s = self._moving.shown_s(groups, turned=bool(turned))
            sides.append(float(seconds.sum() + shown_s.sum()))
        ahead_s, behind_s = (np.full((1, len(self.own)), side) for side in sides)
        e = self.estimator
        sync = self._sync(count).beside(ahead_s, behind_s, e.framework, e.rates.optimizer_s)
        return sum(sides), self.runs * sum(sides) + float(sync.total_s[0, device])

    def _places(self, device: int) -> tuple[Integers, Integers]:
        """Groups of a device, and which of these its chunks start with."""
        spans = [self.division.chunks[chunk] for chunk in self.own[device].tolist()]
        starts = np.cumsum([0, *(last + 1 - first for first, last in spans[:-1])])
        return np.array(self.groups(device)), starts

    def _sync(self, count: int) -> GradientSyncWork:
        """What follows the last microbatch where every device divides so many blocks."""
        if count not in self.syncs:
            self.syncs[count] = self._following(count)
        return self.syncs[count]

    def _following(self, count: int) -> GradientSyncWork:
        e, layouts = self.estimator, self.estimator.layouts
        held = layouts.device_parameters(self.plan)
        whole = layouts.device_parameters(self.plan, ~self.masks[count])
        given = self.estimator.exchanges(self.plan), e.framework, e.rates.wire_bytes, [self.runs]
        return GradientSyncWork.of(held, *given, whole)


def spread_places(blocks: int, count: int) -> list[int]:
    """Places of so many of some blocks, or of all, spread evenly."""
    taken = min(blocks, count)
    return [(2 * nth + 1) * blocks // (2 * taken) for nth in range(taken)]
