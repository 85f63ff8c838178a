"""The certified search of one run: for the frontier, for the objective alone, above floors; with a copy of this
process where there is enough to do for two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np

from phaze.errors import OutOfTimeError
from phaze.explore.answers.searched_question import best_kept, fastest_axes, search_axes, worth_of
from phaze.explore.certified.block_screening import half_over
from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.dealt_configs import DealtConfigs, dealt
from phaze.explore.certified.search_points import WorkloadPoints
from phaze.explore.certified.search_state import Outcome, Point, Reached
from phaze.explore.evaluation.design_builder import out_of_memory
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.drawn_power import drawn_w
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.explore_request import ExploreRequest, objective_of
from phaze.explore.request.objective_floor import below_floor, draws_more, floor_throughput
from phaze.explore.request.partner_process import may_work_beside, partner_process
from phaze.explore.request.search_progress import Clock, ClockShare, Progress, ReportingClock
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.hardware.silicon.package_power import tdp_w
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES, SAME

WORTH_PARTNER = 1 << 22  # points of which half are worth a process

SMALLEST = 32  # architectures of least power that are looked at where none draws little enough


class ExplorationSearch:
    """Searches the space of one run for the best points, and for the frontier, of one workload."""

    def __init__(
        self,
        request: ExploreRequest,
        progress: Progress,
        clock: Clock,
        resources: SearchResources = ALONE,
        like: Evaluator | None = None,
    ) -> None:
        """`like`: knows the same hardware and layers; what they cost is shared."""
        self.request = request
        self.progress = progress
        self.clock = clock
        self.resources = resources
        self._like = like
        self._dealt: DealtConfigs | None = None
        self._started = datetime.now(UTC)
        self.axes = search_axes(request)
        self.objective = objective_of(request)
        self.candidates = Candidates(request.space, request.budgets)
        self._whole_clock = clock.whole if isinstance(clock, ClockShare) and clock.whole else clock
        self.reporting = SolveLimits(ReportingClock(self._whole_clock).left, FEW_STATES)

    def search(self) -> Outcome:
        """The certified search for the frontier.

        Raises InfeasibleError where nothing fits or keeps the floors, OutOfTimeError where nothing was evaluated
        that does.
        """
        if not self.request.over_axes or not self.axes.others:
            return self._checked(self._certified(self.axes, self.floor, self.request.gap))
        return self._after_the_best(self._checked(self._objective_alone()))

    def _objective_alone(self) -> Outcome:
        """The search for the objective: proven, it bounds what a frontier on more axes leaves undecided."""
        half = ClockShare(self.clock.left() / 2, whole=self.clock)
        return self._certified(SearchAxes((self.objective,)), self.floor, self.request.gap, half)

    def _after_the_best(self, alone: Outcome) -> Outcome:
        """The search for the frontier, where the best of the objective is known."""
        ((number, config),) = alone.members
        outcome = self._certified(self.axes, self.floor, self.request.gap, first=[number])
        if outcome.finished:
            return self._checked(outcome)
        known = best_kept(self.axes, self.objective, outcome, alone)
        if known.frontier.keys and self.proven(known) * (1 + SAME) >= alone.most_reached:
            return known
        return self._with(known, (number, config), alone.evaluated[number, config].value)

    def _with(self, outcome: Outcome, point: Point, value: float) -> Outcome:
        """An outcome that was stopped before it evaluated a point of a throughput in samples/s."""
        points = self._points(self.axes, self.floor, self.clock)
        block = self.candidates.within(np.array([point[0]]))
        pool = points.hopes(block, np.zeros(1, dtype=np.intp), np.array([point[1]]), np.array([value]))
        others, lead = points.measured(pool, np.array([value]), self.reporting)
        found = Reached(value, float(lead[0]), tuple(others[0].tolist()), float(block.area_mm2[0]))
        outcome.frontier.add(found.others, found.lead, points.key(point, found))
        left = {**outcome.pruned_by, "open": outcome.pruned_by["open"] - 1}
        return replace(
            outcome,
            evaluated={**outcome.evaluated, point: found},
            pruned_by={name: count for name, count in left.items() if count},
        )

    def fastest(self, least: float = 0.0, gap: float = 0.0) -> Outcome:
        """The search for the highest throughput alone, from `least` samples/s on, as far as a gap; floors aside."""
        return self._certified(fastest_axes(), least, gap)

    def beyond(self, known: float) -> Outcome:
        """The search for the objective alone and what is better than `known`, as certificates tell it, above floors.

        Nothing is evaluated where nothing is better.
        """
        return self._certified(SearchAxes((self.objective,)), self.floor, self.request.gap, known=known)

    def fastest_proof(self) -> Outcome:
        """The same above the floors. Raises as `search`."""
        return self._checked(self.fastest(self.floor, self.request.gap))

    def _whole(self, fastest: Outcome) -> Outcome | None:
        """The frontier where the highest throughput is known; None where time does not let it come that far."""
        try:
            outcome = self.search()
        except OutOfTimeError:
            return None
        others, hoped = outcome.undecided
        known = replace(outcome, undecided=(others, np.minimum(hoped, fastest.most)))
        best = max(one.value for one in known.evaluated.values())
        return known if best * (1 + SAME) >= max(one.value for one in fastest.evaluated.values()) else None

    def _with_power(self, fastest: Outcome) -> Outcome:
        """A search for the highest throughput as one that knows of power, but nothing of slower designs."""
        numbers = np.array([number for number, _ in fastest.evaluated], dtype=np.int64)
        tdp = self.candidates.within(numbers).tdp_w.tolist()
        evaluated = {
            point: replace(one, others=(power,))
            for (point, one), power in zip(fastest.evaluated.items(), tdp, strict=True)
        }
        frontier = self.axes.archive()
        for point, key in zip(fastest.members, fastest.frontier.keys, strict=True):
            frontier.add(evaluated[point].others, evaluated[point].lead, key)
        hoped = fastest.undecided[1]
        return replace(
            fastest, evaluated=evaluated, frontier=frontier, undecided=(np.zeros((len(hoped), 1)), hoped)
        )

    def proven(self, outcome: Outcome) -> float:
        """The best objective that an outcome reached."""
        return max(worth_of(self.objective, self.axes, one) for one in outcome.evaluated.values())

    @property
    def _drawn(self) -> bool:
        """Whether a plan has to keep a limit of what is drawn."""
        return self.request.budgets.drawn_limit_w is not None

    @cached_property
    def floor(self) -> float:
        """The least throughput asked for, samples/s."""
        return floor_throughput(self.request, self.request.task)

    @cached_property
    def evaluators(self) -> list[Evaluator]:
        """One for each workload, which know the combinations of hardware of the whole space."""
        if self._like is not None:
            return [self._like.of(self.request.task)]
        survey = self.candidates.survey()
        return [Evaluator(task, survey, memo=self.resources.memo) for task in self.request.tasks]

    @property
    def evaluator(self) -> Evaluator:
        """That of the first workload."""
        return self.evaluators[0]

    def _certified(
        self,
        axes: SearchAxes,
        least: float,
        gap: float,
        clock: Clock | None = None,
        first: Sequence[int] = (),
        known: float = 0.0,
    ) -> Outcome:
        timer = clock or self.clock
        points = self._points(axes, least, timer)
        return CertifiedSearch(points, timer, self.progress, gap=gap, first=first, known=known).run()

    def _points(self, axes: SearchAxes, least: float, clock: Clock) -> WorkloadPoints:
        points = WorkloadPoints.of(
            self.candidates,
            self.request.task,
            clock,
            axes,
            least=least,
            resources=self.resources,
            evaluator=self.evaluator,
        )
        points.dealt = self._dealt
        return points

    def _checked(self, outcome: Outcome) -> Outcome:
        """An outcome with a frontier; else it raises why there is none."""
        if outcome.frontier.keys:
            return outcome
        if outcome.finished and self.floor > 0:
            self._check_fastest()
        if outcome.finished and self._drawn:
            self._check_drawn()
        if outcome.finished:
            raise out_of_memory(self.evaluator, f"space {self.request.space.name}")
        raise out_of_time(floored=self.floor > 0)

    def _check_fastest(self) -> None:
        """Raises InfeasibleError with the highest throughput there is, where something fits at all.

        OutOfTimeError where time is over before that is known.
        """
        fastest = self.fastest()
        if not fastest.finished:
            raise out_of_time(floored=True)
        if fastest.frontier.keys:
            raise below_floor(self.request, self.request.task, fastest.most)

    def _check_drawn(self) -> None:
        """Raises InfeasibleError with the power that small architectures draw, where the workload fits on any."""
        table, limit_w = self.candidates.survey(), self.request.budgets.drawn_limit_w
        smallest = np.argsort(tdp_w(table), kind="stable")[:SMALLEST]
        watts = drawn_w(self.evaluator.on(table.take(smallest)), self.reporting)
        if limit_w is not None and watts.any():
            raise draws_more(self.request, limit_w, float(watts[watts > 0].min()))

    @contextmanager
    def _with_partner(self) -> Iterator[None]:
        """Deal the configs with a copy of this process, where there is enough to do for two."""
        if not self._worth_partner:
            yield
            return
        context = self._points(self.axes, self.floor, self.clock).context
        evaluator = self.evaluator
        evaluator.prepare(half_over(self.clock))
        with partner_process(context.do, self.clock) as partner:
            self._dealt = DealtConfigs(context, partner, dealt(evaluator.configs))
            try:
                yield
            finally:
                self._dealt = None

    @property
    def _worth_partner(self) -> bool:
        """Whether one workload has many points whose values follow from the time they take."""
        if len(self.request.tasks) > 1 or not self.axes.fixed or self._drawn:
            return False
        if self.resources.executor.workers > 1 or not may_work_beside():
            return False
        return self.candidates.size * len(self.evaluator.configs) >= WORTH_PARTNER


def out_of_time(*, floored: bool) -> OutOfTimeError:
    """Nothing is known yet; `floored`: that is fast enough."""
    first = (
        "an architecture was found that is fast enough" if floored else "the first architecture was evaluated"
    )
    return OutOfTimeError(f"the time limit passed before {first}; raise --time-limit")
