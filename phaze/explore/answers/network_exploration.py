"""Which accelerator on which network: one certified search over both, each device's share of the network counting.

Networks are searched as boxes of a branch and bound. A box is bounded by the certified search on a network on which
every exchange is as fast as on the fastest of the box for it, that draws and costs as little as the leanest of them: no
design on any network of the box is better than the best there. A box that may hold something better than what is known
is divided along the next axis, down to single networks, whose searches are exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InfeasibleError, OutOfTimeError
from phaze.explore.answers.answer_parts import Answer
from phaze.explore.answers.certificate_counts import PointCounts, certificate
from phaze.explore.answers.exploration import Exploration
from phaze.explore.answers.exploration_search import out_of_time
from phaze.explore.certified.search_state import Outcome
from phaze.explore.documents.network_report import NetworkChoice, NetworkReport
from phaze.explore.documents.result_document import Design, ResultDocument
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import ExploreRequest
from phaze.explore.request.search_progress import Clock, Progress
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import Network, best_of
from phaze.hardware.economics.network_share import NetworkDraw, network_usd
from phaze.hardware.spaces.network_axes import SpaceNetwork
from phaze.tolerances import BOUND_ROUNDING


class NetworkStatus(StrEnum):
    """Fate of one network."""

    SEARCHED = "searched"
    BOUNDED = "bounded"  # it cannot be better than the best
    INFEASIBLE = (
        "infeasible"  # no architecture keeps the budgets beside it, or the workload fits none of them
    )
    OPEN = "open"  # time was over


def networks_of(request: ExploreRequest) -> tuple[SpaceNetwork, ...]:
    """The networks of a request whose space has some. Raises InputError where its base network allows none."""
    axes = request.space.network_axes
    return () if axes is None else axes.networks(request.task.network, request.task.devices)


def with_network(request: ExploreRequest, network: Network) -> ExploreRequest:
    """The request on one network, whose share counts in a device's budget of power."""
    task = replace(request.task, network=network)
    draw = NetworkDraw(task.devices, network, task.economics)
    budgets = replace(request.budgets, network=draw)
    return replace(request, task=task, budgets=budgets, space=replace(request.space, network_axes=None))


def within_network(request: ExploreRequest, document: ResultDocument) -> ExploreRequest:
    """The request on the network of a document's winner; as it is where networks are not searched."""
    if request.space.network_axes is None or document.networks is None:
        return request
    named = {one.network.name: one.network for one in networks_of(request)}
    network = named.get(document.networks.network)
    return request if network is None else with_network(request, network)


def networks_scope(names: Sequence[str]) -> list[str]:
    """The networks that a certificate speaks of, and whose frontier is told."""
    return [
        f"network among {', '.join(names)}",
        "power of a device is its TDP and its share of links, switches and adapters",
        "the frontier is that of the best network",
    ]


@dataclass
class _Searched:
    """One network while the search goes on; `within`: architectures that keep the budgets beside it."""

    network: SpaceNetwork
    request: ExploreRequest
    within: int = 0
    status: NetworkStatus = NetworkStatus.OPEN
    bound: float = np.inf
    value: float | None = None
    best: str | None = None
    counted: PointCounts | None = None

    def counts(self, size: int) -> PointCounts:
        """Points by fate of a space of so many architectures: in its search, or by what made one unnecessary."""
        if self.counted is not None:
            return self.counted
        configs = self.request.task.points_per_architecture
        fate = {NetworkStatus.OPEN: "open", NetworkStatus.INFEASIBLE: "memory"}.get(self.status, "network")
        return PointCounts(size * configs, (size - self.within) * configs, 0, {fate: self.within * configs})


@dataclass(order=True)
class _Box:
    """Networks with the first `depth` axes alike, by position; `worst`: less than 0, the negative of their bound."""

    worst: float
    order: int
    depth: int = field(compare=False)
    members: list[int] = field(compare=False)


class NetworkExploration:
    """One run of the main job over architectures and networks."""

    def __init__(
        self, request: ExploreRequest, progress: Progress, clock: Clock, resources: SearchResources = ALONE
    ) -> None:
        """Nothing is searched yet."""
        self.request, self.progress, self.clock, self.resources = request, progress, clock, resources
        self._all = [_Searched(one, with_network(request, one.network)) for one in networks_of(request)]
        self._like: Evaluator | None = None
        self._best: tuple[_Searched, Exploration, Outcome] | None = None
        self._boxes: list[_Box] = []
        self._number = 0

    def answer(self) -> Answer:
        """Search, then describe the winner with the account of all networks. Raises InfeasibleError, OutOfTimeError."""
        self._count()
        self._push(0, [i for i, one in enumerate(self._all) if one.within], np.inf)
        while self._boxes and not self.clock.over:
            box = heapq.heappop(self._boxes)
            if not self._hopeful(-box.worst):
                self._settle(box.members, -box.worst)
                continue
            self._look(box)
        for box in self._boxes:
            self._leave(box)
        if self._best is None:
            raise self._nothing()
        return self._described(*self._best)

    # -- the search -----------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Architectures that keep the budgets beside each network."""
        for done, one in enumerate(self._all):
            self.progress.update("counting networks", done, len(self._all), one.network.network.name)
            candidates = Candidates(one.request.space, one.request.budgets)
            one.within = sum(len(block) for block in candidates.blocks())
            if not one.within:
                one.status, one.bound = NetworkStatus.INFEASIBLE, 0.0

    def _push(self, depth: int, members: list[int], bound: float) -> None:
        """Add a box; axes along which its members do not differ are passed over."""
        if members:
            heapq.heappush(self._boxes, _Box(-bound, self._number, depth, members))
            self._number += 1

    @property
    def value(self) -> float:
        """What the best known design reaches, as certificates tell it; 0 without one."""
        return (self._best[0].value or 0.0) if self._best else 0.0

    def _hopeful(self, bound: float) -> bool:
        """Whether something may be better than the best known by more than the gap that is asked for."""
        return bound > self.value * (1.0 + self.request.gap) * (1.0 + BOUND_ROUNDING)

    def _look(self, box: _Box) -> None:
        """Search a box on the best of its networks; divide it where something better may be there."""
        several = len(box.members) > 1
        network = best_of([self._all[i].network.network for i in box.members])
        request = with_network(self.request, network)
        exploration = Exploration(request, self.progress, self.clock, self.resources, self._like)
        self._like = self._like or exploration.evaluator
        outcome = exploration.beyond(self.value)
        bound = min(-box.worst, max(outcome.most, self.value))
        if not outcome.finished and not several:
            self._all[box.members[0]].bound = bound
        if several:
            self._divide(box, bound)
        else:
            self._searched(self._all[box.members[0]], exploration, outcome, bound)

    def _divide(self, box: _Box, bound: float) -> None:
        """Boxes by the value on the next axis along which the members differ."""
        names = list(self._all[0].network.values)
        depth = box.depth
        while True:
            groups: dict[object, list[int]] = {}
            for i in box.members:
                groups.setdefault(self._all[i].network.values[names[depth]], []).append(i)
            depth += 1
            if len(groups) > 1:
                break
        for members in groups.values():
            self._push(depth, members, bound)

    def _searched(self, one: _Searched, exploration: Exploration, outcome: Outcome, bound: float) -> None:
        reached = {found.lead: point[0] for point, found in outcome.evaluated.items()}
        value = max(reached, default=0.0)
        if value > self.value:
            one.value, one.best = value, exploration.candidates.architecture(reached[value]).name
            one.status, one.bound = NetworkStatus.SEARCHED, max(value, bound)
            one.counted = PointCounts.of(outcome, exploration.candidates)
            self._best = one, exploration, outcome
        elif not outcome.finished and self._hopeful(bound):
            one.bound = bound
        elif self._best is None:
            one.status, one.bound = NetworkStatus.INFEASIBLE, 0.0
        else:
            one.status, one.bound = NetworkStatus.BOUNDED, bound

    def _settle(self, members: list[int], bound: float) -> None:
        for i in members:
            self._all[i].status, self._all[i].bound = NetworkStatus.BOUNDED, min(bound, self._all[i].bound)

    def _leave(self, box: _Box) -> None:
        """Networks that time was too short for: bounded all the same, or open."""
        for i in box.members:
            one = self._all[i]
            one.bound = min(one.bound, -box.worst)
            if not self._hopeful(one.bound):
                one.status = NetworkStatus.BOUNDED

    # -- the answer -----------------------------------------------------------------------------------------

    def _described(self, one: _Searched, exploration: Exploration, outcome: Outcome) -> Answer:
        answer = exploration.around(outcome) if not one.request.over_axes else exploration.told(outcome)
        told = answer.document.certificate
        one.value, one.best = told.objective_value, answer.document.best.id
        one.bound = max(told.objective_value, min(one.bound, told.upper_bound))
        one.counted = PointCounts(told.space_size, told.over_budget, told.evaluated, told.pruned_by)
        size = exploration.candidates.size
        proven = certificate(
            told.objective,
            told.objective_value,
            [
                max(other.bound, told.objective_value) if other.bound < np.inf else np.inf
                for other in self._all
            ],
            PointCounts.sum([other.counts(size) for other in self._all]),
            [*told.scope, *networks_scope([other.network.network.name for other in self._all])],
            complete=told.frontier_complete,
            plans_each=told.plans_per_architecture,
        )
        report = network_report(
            self.request, answer.document.best, one.network, [self._choice(other) for other in self._all]
        )
        document = answer.document.model_copy(update={"certificate": proven, "networks": report})
        return Answer(document, answer.designs)

    def _choice(self, one: _Searched) -> NetworkChoice:
        return NetworkChoice(
            network=one.network.network.name,
            values=dict(one.network.values),
            status=one.status.value,
            architectures_within=one.within,
            upper_bound=None if np.isinf(one.bound) else one.bound,
            objective_value=one.value if one.status is NetworkStatus.SEARCHED else None,
            id=one.best if one.status is NetworkStatus.SEARCHED else None,
        )

    def _nothing(self) -> InfeasibleError | OutOfTimeError:
        if not any(one.within for one in self._all):
            leanest = min(self._all, key=lambda one: self._share(one.request).min())
            return Candidates(leanest.request.space, leanest.request.budgets).none_left()
        if any(one.status is NetworkStatus.OPEN for one in self._all):
            return out_of_time(floored=self.request.min_throughput is not None)
        fits = "is fast enough" if Exploration(*self._first).floor > 0 else "fits"
        return InfeasibleError(
            f"{self.request.task.workload.name} {fits} on no architecture of space {self.request.space.name} on any of "
            f"its {len(self._all)} networks; more devices or larger HBM stacks (--space) would help"
        )

    @property
    def _first(self) -> tuple[ExploreRequest, Progress, Clock]:
        return self._all[0].request, self.progress, self.clock

    def _share(self, request: ExploreRequest) -> Floats:
        """What the network draws beside some architectures of the space, W."""
        table = Candidates(request.space, request.budgets).survey(256)
        draw = request.budgets.network
        return np.zeros(1) if draw is None else draw.of(table)


def network_report(
    request: ExploreRequest, best: Design, network: SpaceNetwork, choices: list[NetworkChoice]
) -> NetworkReport:
    """The winner's network with a device's share of its power and price, beside every network of the space."""
    devices, economics = request.task.devices, request.task.economics
    chip: ArchitectureTable = to_table([Architecture(name=best.id, fields=best.architecture)])
    draw = NetworkDraw(devices, network.network, economics)
    share_w = float(draw.of(chip)[0])
    links = float(chip["link_bandwidth_bytes_per_s"][0])
    inner, outer = network.network.tiers[0], network.network.tiers[-1]
    return NetworkReport(
        network=network.network.name,
        scale_up_devices=inner.devices,
        scale_up_topology=str(inner.topology),
        scale_up_dims=list(inner.dims),
        scale_up_bandwidth_bytes_per_s=inner.bandwidth_bytes_per_s or links,
        scale_out_bandwidth_bytes_per_s=outer.bandwidth_bytes_per_s or links,
        oversubscription=outer.oversubscription,
        network_power_per_device_w=share_w,
        power_per_device_w=best.tdp_w + share_w,
        network_price_per_device_usd=float(network_usd(chip, devices, network.network, economics)[0]),
        choices=choices,
    )
