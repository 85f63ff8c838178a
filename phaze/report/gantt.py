"""A schedule as rows of cores and bars of operators: what every drawing of it shows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from phaze.report.format import duration, percent, time_unit
from phaze.report.gantt_rows import Block, Rows
from phaze.report.slack import slack_s
from phaze.solvers.scheduling import Operator, ScheduleProblem, ScheduleResult

IDLE = "#f2f2f2"
CRITICAL = "no slack (critical chain)"
OUTLINE_PX = 2.5
_NO_SLACK = 1e-9  # relative to the makespan: room for rounding only
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


_LOOKS = (
    ("#0b5394", "#ffffff", ""),
    ("#f6cf71", "#111111", ""),
    ("#7fc4a8", "#111111", "#5ea98b"),
    ("#cfe2f7", "#111111", "#8fb3dc"),
    ("#a83c32", "#ffffff", "#bd6058"),
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
            critical=slack[op.id] <= _NO_SLACK * result.makespan_s,
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
