"""Order of evaluated designs: the objective, and the floors it has to keep."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.errors import InfeasibleError, InputError, Shortfall
from phaze.explore.request.explore_request import ExploreRequest, Objective, Task
from phaze.quantity import shown

_BUDGETS = {"--power": "power_w", "--area": "area_mm2", "--power-density": "power_density_w_per_mm2"}


def floor_throughput(request: ExploreRequest, task: Task) -> float:
    """The least throughput, samples/s, that keeps the floors on throughput and on the time of an iteration."""
    floor = request.min_throughput or 0.0
    if request.max_latency_s is not None:
        floor = max(floor, task.cluster.global_batch / request.max_latency_s)
    return floor


@dataclass(frozen=True)
class Goal:
    """An objective over designs of at least `floor` throughput (or score).

    A complete frontier of throughput against TDP holds the best: what dominates a design that keeps the floor
    keeps it too, and is no worse.
    """

    objective: Objective
    floor: float = 0.0

    def value(self, throughput: float, tdp_w: float) -> float:
        """The objective to maximise; a minimised one enters as its reciprocal. 0 below the floor."""
        if throughput < self.floor:
            return 0.0
        match self.objective:
            case Objective.THROUGHPUT:
                return throughput
            case Objective.THROUGHPUT_PER_TDP:
                return throughput / tdp_w
            case Objective.TDP:
                return 1.0 / tdp_w
            case other:
                raise InputError(f"--objective {other} is for one workload and the certified search")


def below_floor(request: ExploreRequest, task: Task, best: float) -> InfeasibleError:
    """Nothing keeps the floors; `best` is the highest throughput there is."""
    longest = task.cluster.global_batch / best
    levers, shortfalls = _levers(request), []
    if request.min_throughput is not None and best < request.min_throughput:
        lower = (*levers, "a lower --min-throughput")
        shortfalls.append(
            Shortfall("least throughput", request.min_throughput, best, "samples/s", lower, floor=True)
        )
    if request.max_latency_s is not None and longest > request.max_latency_s:
        longer = (*levers, "a longer --max-latency")
        shortfalls.append(Shortfall("time of one iteration", request.max_latency_s, longest, "s", longer))
    return InfeasibleError(
        f"no architecture of space {request.space.name} is fast enough for {task.workload.name}: the best "
        f"reaches {shown(best)} samples/s, {shown(longest)} s for an iteration",
        tuple(shortfalls),
    )


def draws_more(request: ExploreRequest, limit_w: float, least_w: float) -> InfeasibleError:
    """No architecture draws as little as it may; `least_w`: what a small one draws under its fastest plan."""
    levers = "a larger --power", "lower clocks or smaller designs in the space (--space)"
    return InfeasibleError(
        f"every architecture of space {request.space.name} draws more than {limit_w:g} W while "
        f"{request.task.workload.name} runs",
        (Shortfall("power drawn", limit_w, least_w, "W", levers),),
    )


def _levers(request: ExploreRequest) -> tuple[str, ...]:
    """Changes to the request that would make the best design faster, in words."""
    given = [option for option, name in _BUDGETS.items() if getattr(request.budgets, name) is not None]
    more = f"a larger budget ({', '.join(given)})" if given else "faster designs in the space (--space)"
    return ("more --devices", more)
