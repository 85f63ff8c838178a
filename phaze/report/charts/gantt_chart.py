"""A schedule as rows of cores and bars of operators, and how much later each may start: what every drawing of it
shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import inf

from phaze.report import palette
from phaze.report.number_format import duration, percent, time_unit
from phaze.solvers.scheduling import Operator, ScheduleProblem, ScheduleResult
from phaze.tolerances import SAME


def slack_s(problem: ScheduleProblem, result: ScheduleResult) -> dict[str, float]:
    """How much later every operator could start, s; makespan, modes, cores and their order are kept.

    An operator ends at the latest when one that waits for it must start: because the graph says so, because
    both hold a core, because one of them is core-parallel, or because the other starts with what bandwidth it
    leaves. Takes n^2 steps for n operators.
    """
    latest_end = dict.fromkeys(result.ends_s, result.makespan_s)
    slack: dict[str, float] = {}
    predecessors: dict[str, set[str]] = {name: set() for name in result.ends_s}
    for before, after in problem.edges:
        predecessors[after].add(before)
    clashes = _Clashes(problem, result)
    for name in reversed(_by_time(problem, result)):
        latest_start = latest_end[name] - (result.ends_s[name] - result.starts_s[name])
        for before in predecessors[name] | clashes.before(name):
            latest_end[before] = min(latest_end[before], latest_start)
        slack[name] = max(0.0, latest_start - result.starts_s[name])
    return slack


def _by_time(problem: ScheduleProblem, result: ScheduleResult) -> list[str]:
    """Operators in the order they run; those that take no time after their predecessors too."""
    names = [problem.operators[i].id for i in problem.topological_order]
    return sorted(names, key=lambda name: (result.starts_s[name], result.ends_s[name]))


class _Clashes:
    """Which operators must not run at one moment; those that take no time disturb nobody."""

    def __init__(self, problem: ScheduleProblem, result: ScheduleResult) -> None:
        """Cores, blocking and bandwidth of the operators that take time."""
        self._ends = result.ends_s
        self._starts = {name: start for name, start in result.starts_s.items() if start < self._ends[name]}
        self._whole = set(result.parallel)
        self._held = {name: set(cores) for name, cores in result.cores.items() if name not in self._whole}
        self._blocked = {op.id for op in problem.operators if not problem.unblocked.issuperset(op.units)}
        self._draw = {op.id: op.modes[result.modes[op.id]].bandwidth for op in problem.operators}
        self._bandwidth = inf if problem.bandwidth is None else problem.bandwidth * (1 + SAME)

    def before(self, name: str) -> set[str]:
        """Operators that must be over when one starts."""
        start = self._starts.get(name, 0.0)
        left = self._bandwidth - self._drawn(start)
        return {
            other
            for other, begun in self._starts.items()
            if begun < start
            and (self._clash(name, other) or (self._ends[other] <= start and self._draw[other] > left))
        }

    def _drawn(self, moment_s: float) -> float:
        """Bandwidth that the operators that run at a moment draw together."""
        return sum(
            self._draw[name] for name, start in self._starts.items() if start <= moment_s < self._ends[name]
        )

    def _clash(self, one: str, other: str) -> bool:
        if one in self._whole or other in self._whole:
            return one in self._blocked and other in self._blocked
        return not self._held[one].isdisjoint(self._held[other])


MOST_CORES = 16
"""With more cores than this, neighbours that run the same operators share a row."""

Block = tuple[int, int]
"""First and last of neighbouring rows."""


class Rows:
    """The rows from top to bottom, unit by unit; those that core-parallel operators do not block come last.

    Core-parallel operators decide nothing: thousands of cores that run only those are one row.
    """

    def __init__(self, problem: ScheduleProblem, result: ScheduleResult) -> None:
        """Number the rows and look up those of every operator."""
        units = sorted(problem.capacity, key=lambda unit: unit in problem.unblocked)
        held = {name: cores for name, cores in result.cores.items() if name not in result.parallel}
        guests = _guests(held)
        share = sum(problem.capacity.values()) > MOST_CORES
        row_of: dict[str, int] = {}
        labels: list[str] = []
        blocked = 0
        for unit in units:
            cores = [f"{unit}{k}" for k in range(problem.capacity[unit])]
            for _, group in groupby(cores, lambda core: guests.get(core, []) if share else core):
                same = list(group)
                row_of.update(dict.fromkeys(same, len(labels)))
                labels.append(_label(unit, same))
            blocked = blocked if unit in problem.unblocked else len(labels)
        self.labels = tuple(labels)
        self._every: tuple[Block, ...] = ((0, blocked - 1),)
        self._held = {name: tuple(_blocks({row_of[core] for core in cores})) for name, cores in held.items()}

    def blocks(self, name: str) -> tuple[Block, ...]:
        """Stretches of rows an operator holds: one over all rows it blocks where it is core-parallel."""
        return self._held.get(name) or self._every


def row_px(count: int) -> float:
    """Height of a row: a few rows are tall enough for upright names, many still for names across."""
    return min(max(32.0, 160 / count), max(16.0, 640 / count))


def _guests(held: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """The operators on every core that has any."""
    guests: dict[str, list[str]] = {}
    for name, cores in held.items():
        for core in cores:
            guests.setdefault(core, []).append(name)
    return guests


def _label(unit: str, cores: list[str]) -> str:
    """`TC3`, or `TC4-63`."""
    return cores[0] if len(cores) == 1 else f"{cores[0]}-{cores[-1].removeprefix(unit)}"


def _blocks(rows: set[int]) -> Iterator[Block]:
    """The first and last of each run of consecutive numbers."""
    ordered = sorted(rows)
    cuts = [i for i, (a, b) in enumerate(pairwise(ordered), start=1) if b > a + 1]
    for first, last in pairwise([0, *cuts, len(ordered)]):
        if last > first:
            yield ordered[first], ordered[last - 1]


IDLE = palette.WASH
CRITICAL = "no slack (critical chain)"
OUTLINE_PX = 2.5
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML forbids


@dataclass(frozen=True)
class Kind:
    """Operators that need the same units, such as TC+VC, and how they look.

    `ink` is the colour of a text on `fill`, `stripe` that of its hatching (empty: plain).
    """

    units: str
    fill: str
    ink: str
    stripe: str


_LOOKS = tuple(
    (fill, palette.ON[fill], stripe)
    for fill, stripe in (
        (palette.BLUE, ""),
        (palette.ORANGE, ""),
        (palette.TEAL, palette.TINTS[palette.TEAL]),
        (palette.PALE, palette.GREY),
        (palette.VIOLET, palette.TINTS[palette.VIOLET]),
    )
)
"""Fill, ink, stripe. The fills differ in lightness as well as in hue: they stay apart in print and to every eye."""


@dataclass(frozen=True)
class Bar:
    """One operator: when it runs, on which blocks of rows, and in `facts` what the picture cannot say."""

    name: str
    kind: Kind
    start_s: float
    end_s: float
    critical: bool
    blocks: tuple[Block, ...]
    facts: tuple[str, ...]

    def outline_px(self, width_px: float) -> float:
        """How thick its outline is at some width: thick where it is critical, never hiding the fill."""
        return min(OUTLINE_PX if self.critical else 1.0, width_px / 4)


@dataclass(frozen=True)
class Gantt:
    """A drawable schedule; `rows` are cores from top to bottom, `kinds` what the legend explains."""

    title: str
    facts: str
    rows: tuple[str, ...]
    kinds: tuple[Kind, ...]
    bars: tuple[Bar, ...]
    makespan_s: float
    lower_bound_s: float

    @property
    def span_s(self) -> float:
        """Length of the time axis, s: the makespan, or a nanosecond where that is zero."""
        return self.makespan_s or 1e-9

    @property
    def bound_shows(self) -> bool:
        """Whether the lower bound stands visibly apart from the makespan."""
        return self.lower_bound_s < (1 - 1e-6) * self.makespan_s


def gantt(problem: ScheduleProblem, result: ScheduleResult, title: str) -> Gantt:
    """The picture of a schedule."""
    rows, kinds = Rows(problem, result), _kinds(problem)
    slack = slack_s(problem, result)
    bars = [
        Bar(
            name=_printable(op.id),
            kind=kinds[op.units],
            start_s=result.starts_s[op.id],
            end_s=result.ends_s[op.id],
            critical=slack[op.id] <= SAME * result.makespan_s,
            blocks=rows.blocks(op.id),
            facts=_facts(op, result, slack[op.id]),
        )
        for op in problem.operators
    ]
    return Gantt(
        title=_printable(title),
        facts=_summary(result),
        rows=rows.labels,
        kinds=tuple(kind for kind in kinds.values() if any(bar.kind == kind for bar in bars)),
        bars=tuple(bars),
        makespan_s=result.makespan_s,
        lower_bound_s=result.lower_bound_s,
    )


def _kinds(problem: ScheduleProblem) -> dict[tuple[str, ...], Kind]:
    """Every unit by itself has its look, whatever the operators are; combinations come after."""
    units = [(unit,) for unit in problem.capacity] + [op.units for op in problem.operators]
    return {
        names: Kind("+".join(names), *_LOOKS[i % len(_LOOKS)]) for i, names in enumerate(dict.fromkeys(units))
    }


def _summary(result: ScheduleResult) -> str:
    proof = "proven optimal" if result.optimal else "not proven optimal"
    return (
        f"makespan {duration(result.makespan_s)}, lower bound {duration(result.lower_bound_s)}, "
        f"gap {percent(result.gap)}, {proof}; method {result.method.value}"
    )


def _facts(operator: Operator, result: ScheduleResult, slack: float) -> tuple[str, ...]:
    """Lines such as `start: 1.33048 ms`, all times in the unit of the axis."""
    factor, unit = time_unit(result.makespan_s)
    start_s, end_s = result.starts_s[operator.id], result.ends_s[operator.id]
    times = {"start": start_s, "end": end_s, "duration": end_s - start_s, "slack": slack}
    return (
        f"unit: {'+'.join(operator.units)}",
        *(f"{name}: {seconds * factor:.6g} {unit}" for name, seconds in times.items()),
        f"mode: {_mode(operator, result)}",
    )


def _mode(operator: Operator, result: ScheduleResult) -> str:
    if operator.id in result.parallel:
        return "core-parallel"
    cores = result.cores[operator.id]
    count = len(cores) // len(operator.units)
    return f"single core, {' '.join(cores)}" if count <= 1 else f"{count} cores of each unit"


def _printable(text: str) -> str:
    """The text with a replacement character for what no picture can hold, such as control characters."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
