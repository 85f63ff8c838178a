"""The scheduling problem, operators with modes, precedence and cores, and what every method answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from .precedence import topological_order


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run an operator: on `cores` of each of its units, for `latency_s` without interruption.

    `cores` None is core-parallel: on all cores, excluding every operator that needs a blocked unit.
    `bandwidth` is what it draws of the problem's shared bandwidth while it runs, in the same unit (such as
    byte/s): concurrent operators divide it by the modes they are given.
    """

    cores: int | None
    latency_s: float
    bandwidth: float = 0.0


@dataclass(frozen=True, slots=True)
class Operator:
    """One indivisible piece of work.

    `units` are the unit types it needs, such as ("TC",), ("TC", "VC") or ("LINK",). It runs in one of its
    `modes`: on one core of each unit for `latency_s` (None: not so), core-parallel for
    `parallel_latency_s` (None: not so), or in one of the `moldable` ones, side by side with others.
    """

    id: str
    units: tuple[str, ...]
    latency_s: float | None
    parallel_latency_s: float | None = None
    moldable: tuple[Mode, ...] = ()

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Every way to run it: one core of each unit, core-parallel, then the moldable ones."""
        one = () if self.latency_s is None else (Mode(1, self.latency_s),)
        every = () if self.parallel_latency_s is None else (Mode(None, self.parallel_latency_s),)
        return (*one, *every, *self.moldable)


QUANTITIES = (1e-100, 1e100)
"""Smallest and largest latency (s) or bandwidth but zero: sums, quotients and ticks neither overflow nor vanish."""


class ProblemError(ValueError):
    """A problem that has no meaning; `path` names the offending place, such as `operators[3].latency_s`."""

    def __init__(self, path: str, reason: str) -> None:
        """Keep place and reason apart for callers that rephrase."""
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True)
class ScheduleProblem:
    """A precedence graph of operators and the number of cores of every unit type.

    `edges` are (before, after) pairs of operator ids. A core-parallel operator excludes every operator that
    needs a unit outside `unblocked`. With `pairing`, TC k and VC k belong together for k below both counts
    and a ("TC", "VC") operator must hold both cores of one such pair. `bandwidth` is what concurrent operators
    may draw together (None: no mode draws any).

    Raises ProblemError (a ValueError) that names the offending place.
    """

    operators: tuple[Operator, ...]
    edges: tuple[tuple[str, str], ...]
    capacity: Mapping[str, int]
    pairing: bool = False
    unblocked: frozenset[str] = field(default=frozenset())
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        """Check everything once, so that no solver has to."""
        self._check_capacity()
        if self.bandwidth is not None:
            check_quantity(self.bandwidth, "bandwidth")
        self._check_operators()
        self._check_edges()
        if len(self.topological_order) < len(self.operators):
            raise ProblemError("edges", f"the precedence graph has a cycle through {self._on_cycle()}")

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of every operator by id."""
        return {operator.id: i for i, operator in enumerate(self.operators)}

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the direct successors of every operator, without repeats."""
        lists: list[dict[int, None]] = [{} for _ in self.operators]
        for before, after in self.edges:
            lists[self.index[before]][self.index[after]] = None
        return tuple(tuple(entry) for entry in lists)

    @cached_property
    def topological_order(self) -> tuple[int, ...]:
        """Positions, each after its predecessors; shorter than `operators` where there is a cycle."""
        return topological_order(self.successors)

    def _on_cycle(self) -> str:
        ordered = set(self.topological_order)
        return ", ".join(repr(op.id) for i, op in enumerate(self.operators) if i not in ordered)

    def _check_capacity(self) -> None:
        if not self.capacity:
            raise ProblemError("capacity", "needs at least one unit")
        for unit, count in self.capacity.items():
            for cut in range(len(unit)):
                if unit[cut:].isdecimal() and unit[:cut] in self.capacity:
                    reason = f"its cores would be named like those of {unit[:cut]!r}"
                    raise ProblemError(f"capacity.{unit}", reason)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ProblemError(f"capacity.{unit}", f"needs at least one core, got {count!r}")

    def _check_operators(self) -> None:
        seen: set[str] = set()
        for i, operator in enumerate(self.operators):
            path = f"operators[{i}]"
            if operator.id in seen:
                raise ProblemError(f"{path}.id", f"{operator.id!r} is used twice")
            seen.add(operator.id)
            self._check_units(operator.units, path)
            self._check_modes(operator, path)

    def _check_modes(self, operator: Operator, path: str) -> None:
        if not operator.modes:
            raise ProblemError(path, "needs at least one mode to run in")
        if operator.latency_s is not None:
            check_quantity(operator.latency_s, f"{path}.latency_s")
        if operator.parallel_latency_s is not None:
            check_quantity(operator.parallel_latency_s, f"{path}.parallel_latency_s")
            self._check_blocking(operator, f"{path}.parallel_latency_s")
        if operator.moldable and self.pairing:
            raise ProblemError(f"{path}.moldable", "paired cores run no moldable operators")
        for k, mode in enumerate(operator.moldable):
            self._check_mode(operator, mode, f"{path}.moldable[{k}]")

    def _check_mode(self, operator: Operator, mode: Mode, path: str) -> None:
        check_quantity(mode.latency_s, f"{path}.latency_s")
        if mode.cores is None:
            self._check_blocking(operator, f"{path}.cores")
        elif isinstance(mode.cores, bool) or not isinstance(mode.cores, int) or mode.cores < 1:
            raise ProblemError(f"{path}.cores", f"needs at least one core, got {_brief(mode.cores)}")
        elif mode.cores > (most := min(self.capacity[unit] for unit in operator.units)):
            raise ProblemError(f"{path}.cores", f"there are {most} cores, got {_brief(mode.cores)}")
        check_quantity(mode.bandwidth, f"{path}.bandwidth")
        if mode.bandwidth > (self.bandwidth or 0.0):
            raise ProblemError(f"{path}.bandwidth", f"exceeds the shared bandwidth, {self.bandwidth}")

    def _check_blocking(self, operator: Operator, path: str) -> None:
        if not self.unblocked.isdisjoint(operator.units):
            raise ProblemError(path, "an unblocked unit has no core-parallel mode")

    def _check_units(self, units: tuple[str, ...], path: str) -> None:
        if not units or len(set(units)) < len(units):
            raise ProblemError(f"{path}.units", f"needs one or more different units, got {units!r}")
        for unit in units:
            if unit not in self.capacity:
                known = ", ".join(self.capacity)
                raise ProblemError(f"{path}.units", f"unknown unit {unit!r}; known are {known}")

    def _check_edges(self) -> None:
        for i, edge in enumerate(self.edges):
            for end, name in enumerate(edge):
                if name not in self.index:
                    raise ProblemError(f"edges[{i}][{end}]", f"no operator has the id {name!r}")


def check_quantity(value: float, path: str) -> None:
    """Raise ProblemError unless a latency (s) or bandwidth is 0 or a number that sums and ticks can bear."""
    low, high = QUANTITIES
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (value == 0 or low <= value <= high)
    ):
        raise ProblemError(path, f"needs 0 or a number from {low:g} to {high:g}, got {_brief(value)}")


def _brief(value: object) -> str:
    """A value as short as a message can bear."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


class Method(StrEnum):
    """Method of solving: state-space search, mixed-integer programming, or list scheduling."""

    EXACT = "exact"
    ILP = "ilp"
    CRITICAL_PATH = "critical-path"


class Status(StrEnum):
    """Status of the makespan."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NO_SOLUTION = "no_solution"


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """A schedule and how good it provably is; all times in seconds.

    `starts_s`, `ends_s`, `modes` (position in `Operator.modes`) and `cores` (names such as "TC0") are keyed by
    operator id, `parallel` lists the core-parallel operators. `gap` = (makespan_s - lower_bound_s) / makespan_s.
    `work` counts what the method did (states expanded, models solved, ...).
    """

    status: Status
    method: Method
    makespan_s: float
    lower_bound_s: float
    gap: float
    runtime_s: float
    starts_s: Mapping[str, float]
    ends_s: Mapping[str, float]
    modes: Mapping[str, int]
    parallel: tuple[str, ...]
    cores: Mapping[str, tuple[str, ...]]
    work: Mapping[str, int] = field(default_factory=dict)

    @property
    def optimal(self) -> bool:
        """Whether the makespan is proven to be the smallest possible."""
        return self.status is Status.OPTIMAL


SHARES = (1.0, 0.5, 0.25)
"""Parts of the bandwidth that an operator may be given."""


def moldable_modes(
    compute_s: Mapping[int, float],
    transfer_bytes: float,
    bandwidth_bytes_per_s: float,
    shares: Sequence[float] = SHARES,
) -> tuple[Mode, ...]:
    """The modes that no other one beats in cores, latency and draw; fewest cores first, then fastest.

    `compute_s` is the time that the computation takes by number of cores. Computation and transfer overlap: on
    k cores with a share f the latency is max(compute_s[k], transfer_bytes / (f bandwidth_bytes_per_s)), as in
    the roofline model, and the draw is what moves the bytes in just that time.

    Raises ProblemError for a bandwidth of 0, a share outside 0 to 1, or a quantity out of range.
    """
    check_quantity(bandwidth_bytes_per_s, "bandwidth_bytes_per_s")
    check_quantity(transfer_bytes, "transfer_bytes")
    if bandwidth_bytes_per_s == 0:
        raise ProblemError("bandwidth_bytes_per_s", "needs more than 0 to move anything")
    for k, share in enumerate(shares):
        if not 0.0 < share <= 1.0:
            raise ProblemError(f"shares[{k}]", f"needs more than 0 and at most 1, got {share!r}")
    rows = []
    for cores, seconds in compute_s.items():
        check_quantity(seconds, f"compute_s[{cores}]")
        for share in shares:
            rate = share * bandwidth_bytes_per_s
            latency_s = max(seconds, transfer_bytes / rate)
            draw = min(rate, transfer_bytes / latency_s) if latency_s else 0.0
            rows.append((cores, latency_s, draw))
    return tuple(Mode(*row) for row in _unbeaten(rows))


def _unbeaten(rows: Sequence[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Rows (cores, latency, draw) of which no other one is as small in all three; equal ones once."""
    kept: list[tuple[int, float, float]] = []
    for row in sorted(rows):
        if not any(other[1] <= row[1] and other[2] <= row[2] for other in kept):
            kept.append(row)
    return kept
