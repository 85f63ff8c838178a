"""Every built-in workload on few and many devices under two budgets: an answer, or why there is none, in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from commands import KeptRows, Row, searched
from report import Report
from tables import percent, table

from phaze.workload.workload_library import builtin_names

DEVICES = (8, 1024, 16_384)
POWERS = ("300W", "700W")
LATE = 1.1  # of the limit: what telling an answer may take, the start of the process aside
START_S = 5.0


def measured(
    tell: Callable[[str], None], limit_s: float, only: Sequence[str] = (), kept: Path | None = None
) -> Report:
    """Every case once, with so many seconds to search; `only`: workloads of such names.

    `kept`: file of rows that are done, which are not measured again, so that it can be run in parts.
    """
    done, rows = KeptRows(kept), []
    for workload in builtin_names():
        for devices in DEVICES:
            for power in POWERS:
                name = f"{workload} --devices {devices} --power {power}"
                if only and workload not in only and name not in done.cases:
                    continue
                tell(f"everywhere: {name}")
                asked = ("--workload", *name.split())
                row = done.get(name, partial(searched, name, asked, limit_s))
                rows.append(row | {"workload": workload, "devices": devices, "power": power})
    return Report("everywhere", _text(rows, limit_s), rows)


def _text(rows: Sequence[Row], limit_s: float) -> str:
    late = [row for row in rows if not _in_time(row, limit_s)]
    columns = [(devices, power) for devices in DEVICES for power in POWERS]
    cells = {(row["workload"], row["devices"], row["power"]): _cell(row, limit_s) for row in rows}
    names = list(dict.fromkeys(row["workload"] for row in rows))
    lines = [(name, *(cells.get((name, *column), "") for column in columns)) for name in names]
    head = ("workload", *(f"{devices:,} devices, {power[:-1]} W" for devices, power in columns))
    return f"""# Every workload, everywhere

`dse run` with {limit_s:g} s to search, a process each, without a cache: seconds by the clock until the answer stands,
and the gap where the best is not proven; *no* where nothing fits, with the seconds until that is said; **late** where
it took more than a tenth beyond the limit (and {START_S:g} s to start), or what was said where it ended otherwise.
{len(rows) - len(late)} of {len(rows)} are in time.

{table(head, lines)}

Again: `python benchmarks/run.py everywhere --runs FILE --out docs/benchmarks/everywhere.md`. It takes hours; what is
done is kept in the file, and `--only WORKLOAD ...` takes some of them.
"""


def _in_time(row: Row, limit_s: float) -> bool:
    told = "failed" not in row or row["infeasible"]
    return bool(told and row["seconds"] <= LATE * limit_s + START_S)


def _cell(row: Row, limit_s: float) -> str:
    seconds = f"{row['seconds']:.0f}" if _in_time(row, limit_s) else f"**late** {row['seconds']:.0f}"
    if "failed" in row:
        return f"no, {seconds}" if row["infeasible"] else f"**{row['failed']}**"
    return seconds if row["gap"] == 0 else f"{seconds} ({percent(row['gap'])})"
