"""Every built-in workload on few and many devices under two budgets: an answer, or why there is none, in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from time import monotonic

from commands import KeptRows, Row, searched
from report import Report, rows_of
from tables import percent, table

from phaze.hardware.spaces.space_file import load_space
from phaze.workload.workload_library import builtin_workloads

PUBLISHED = Path(__file__).parents[1] / "docs" / "benchmarks" / "everywhere.json"
DEVICES = (8, 1024, 16_384)
POWERS = ("300W", "700W")
_RISK = ((16_384, "300W"), (8, "300W"), (1024, "300W"), (16_384, "700W"), (8, "700W"), (1024, "700W"))
LATE = 1.1  # of the limit: what telling an answer may take, the start of the process aside
START_S = 3.0
_WIDE = 0.5  # gap


@dataclass(frozen=True)
class Share:
    """Part `which` of `of` equal ones: every so many cases, so that each part has workloads of all kinds."""

    which: int = 1
    of: int = 1

    @classmethod
    def read(cls, text: str) -> Share:
        """`3/41`: the third of 41 parts."""
        which, _, of = text.partition("/")
        found = cls(int(which), int(of))
        if not 1 <= found.which <= found.of:
            raise ValueError(text)
        return found

    def has(self, number: int) -> bool:
        """Whether the case of that number is in this part."""
        return number % self.of == self.which - 1


def measured(
    tell: Callable[[str], None],
    limit_s: float,
    only: Sequence[str] = (),
    kept: Path | None = None,
    share: Share = Share(),
    within_s: float = inf,
) -> Report:
    """Every case once, with so many seconds to search; `only`: workloads of such names; `share`: a part of all cases.

    Rows of the published page and of `kept`, a file, are done and not measured again, so that it can be run in parts:
    they are all reported, those of a default space of another size aside. After `within_s` seconds no further case
    begins. Every workload is asked once before one is asked again, what is most likely to be late first.
    """
    space = {"architectures": load_space().size}
    done, rows, begun = KeptRows(kept, rows_of(PUBLISHED, "everywhere"), space), [], monotonic()
    for number, (workload, devices, power) in _cases():
        name = f"{workload} --devices {devices} --power {power}"
        wanted = share.has(number) and (not only or workload in only) and monotonic() < begun + within_s
        if not wanted and name not in done.cases:
            continue
        tell(f"everywhere: {name}")
        asked = ("--workload", *name.split())
        row = done.get(name, partial(_status, name, asked, limit_s))
        rows.append(row | {"workload": workload, "devices": devices, "power": power})
    return Report("everywhere", _text(rows, limit_s), rows)


def _cases() -> list[tuple[int, tuple[str, int, str]]]:
    """All questions with their numbers: the columns by their risk, in each the workloads of most layers first."""
    depths = {one.name: one.layers for one in builtin_workloads()}
    cases = enumerate(product(depths, DEVICES, POWERS))
    return sorted(cases, key=lambda case: (_RISK.index(case[1][1:]), -depths[case[1][0]]))


_KEPT = ("case", "seconds", "processor_s", "peak_bytes", "gap", "failed", "infeasible")


def _status(name: str, asked: Sequence[str], limit_s: float) -> Row:
    """Whether and how a question was answered."""
    row = searched(name, asked, limit_s, idle=True)
    return {key: row[key] for key in _KEPT if key in row}


def _text(rows: Sequence[Row], limit_s: float) -> str:
    late = [row for row in rows if not _in_time(row, limit_s)]
    without = [row for row in rows if row.get("infeasible")]
    gaps = [row["gap"] for row in rows if "failed" not in row]
    open_ = [gap for gap in gaps if gap > 0]
    columns = [(devices, power) for devices in DEVICES for power in POWERS]
    cells = {(row["workload"], row["devices"], row["power"]): _cell(row, limit_s) for row in rows}
    names = sorted({row["workload"] for row in rows})
    lines = [(name, *(cells.get((name, *column), "") for column in columns)) for name in names]
    head = ("workload", *(f"{devices:,} devices, {power[:-1]} W" for devices, power in columns))
    return f"""# Every workload, everywhere

`dse run` with {limit_s:g} s to search among the {load_space().size:,} architectures of the default space, a process
each, without a cache: seconds by the clock of an idle machine until the answer stands, and in brackets the gap where
the best is not proven; *no* where nothing fits, with the seconds until that is said; **late** where the clock showed
more than a tenth beyond the limit (and {START_S:g} s to start and end), or what was said where it ended otherwise.
{len(rows) - len(late)} of the {len(rows)} questions that were asked are in time, of
{len(builtin_workloads()) * len(columns)} that there are; an empty cell was not asked. The best is proven in
{len(gaps) - len(open_)}, nothing fits in {len(without)}, and {len(open_)} end with a gap, of which
{sum(gap > _WIDE for gap in open_)} are above {percent(_WIDE)}.

{table(head, lines)}

Go on: `python benchmarks/run.py everywhere --runs FILE --out docs/benchmarks`. All of them take hours; the rows beside
this page are not measured again, what is done is kept in the file, and `--within SECONDS` ends after so long. `--share
1/41` takes every 41st question, `--only WORKLOAD ...` some workloads.
"""


def _in_time(row: Row, limit_s: float) -> bool:
    told = "failed" not in row or row["infeasible"]
    return bool(told and row["seconds"] <= LATE * limit_s + START_S)


def _cell(row: Row, limit_s: float) -> str:
    spent = f"{row['seconds']:.0f} s"
    seconds = spent if _in_time(row, limit_s) else f"**late** {spent}"
    if "failed" in row:
        return f"no, {seconds}" if row["infeasible"] else f"**{row['failed']}**"
    return seconds if row["gap"] == 0 else f"{seconds} ({percent(row['gap'])})"
