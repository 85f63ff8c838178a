"""Measure phaze and write what came out as tables, rows of numbers and pictures.

    python benchmarks/run.py PART|all [--data DIR] [--out DIR|FILE.md|FILE.json]

PART is schedules, placement, plans, planning, layer-widths, joint, everywhere, growth, product, scaling, estimates,
workload, imports, imported-searches or convergence; `all` leaves out everywhere, which takes hours, and imports and
imported-searches, which need four libraries.
`--data` is a folder with scheduling/*.json and placement/*.json (formats dse-schedule/1 and dse-placement/1); without
it only seeded instances are solved.
Writes nothing without `--out` and `--answers`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path

import convergence
import convergence_jobs
import convergence_tables
import estimates
import everywhere
import growth
import imported_searches
import imports
import joint
import layer_widths
import placements
import planning
import plans
import product
import scaling
import schedule_tables
import schedules
import workload
from answers import Answers
from report import Report, machine, write


def main() -> None:
    """Run the parts one after another; what is done is written before the next begins."""
    arguments = _parser().parse_args()
    tell(machine())
    done = []
    for part in (
        [one for one in _MEASURED if one not in _APART] if arguments.part == "all" else [arguments.part]
    ):
        done.append(_report(part, arguments))
        print(done[-1].text, flush=True)
        if arguments.out:
            write(done, arguments.out)


def tell(line: str) -> None:
    """Progress, apart from the tables."""
    print(line, file=sys.stderr, flush=True)


def _report(part: str, arguments: argparse.Namespace) -> Report:
    return _MEASURED[part](arguments)


def _convergence(arguments: argparse.Namespace) -> convergence_jobs.Plan:
    if arguments.quick:
        return convergence_jobs.quick()
    return convergence_jobs.Plan(
        tuple(arguments.workloads),
        tuple(arguments.spaces),
        arguments.evaluations,
        arguments.seeds,
        arguments.devices,
        arguments.workers,
        arguments.within,
        tuple(arguments.strategies),
    )


def _schedules(arguments: argparse.Namespace) -> Report:
    chosen = [
        *schedules.from_files(arguments.data),
        *schedules.generated(arguments.operators, arguments.per_family),
    ]
    limits = schedules.Limits(arguments.limit, arguments.peer_limit)
    found = schedules.measure(chosen, limits, Answers(arguments.answers), tell)
    return schedule_tables.report(chosen, limits, found)


def _searches(arguments: argparse.Namespace) -> Report:
    kept = convergence_jobs.Kept(arguments.runs)
    return convergence_tables.report(convergence.measure(_convergence(arguments), tell, kept))


_MEASURED: dict[str, Callable[[argparse.Namespace], Report]] = {
    "schedules": _schedules,
    "placement": lambda asked: placements.report(asked.data),
    "plans": lambda _: plans.measured(),
    "layer-widths": lambda asked: layer_widths.measured(tell, asked.only),
    "planning": lambda asked: planning.measured(tell, asked.only, asked.runs),
    "joint": lambda asked: joint.measured(tell, asked.search_limit, asked.only, asked.runs),
    "everywhere": lambda asked: everywhere.measured(
        tell, asked.search_limit, asked.only, asked.runs, asked.share, asked.within
    ),
    "growth": lambda asked: growth.report(growth.measure(asked.limit, tell), asked.limit),
    "product": lambda _: product.report(),
    "scaling": lambda _: scaling.measured(tell),
    "estimates": lambda _: estimates.report(),
    "workload": lambda _: workload.report(workload.measure(tell)),
    "imports": lambda asked: imports.measured(tell, asked.search_limit, asked.only, asked.runs),
    "imported-searches": lambda asked: imported_searches.measured(
        tell, asked.search_limit, asked.only, asked.runs
    ),
    "convergence": _searches,
}
_APART = ("everywhere", "imports", "imported-searches")  # parts that `all` leaves out


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure phaze.")
    parser.add_argument("part", choices=(*_MEASURED, "all"))
    parser.add_argument("--data", type=Path, help="folder with scheduling/ and placement/ instance files")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds per schedule (default 5)")
    parser.add_argument(
        "--peer-limit", type=float, default=60.0, help="seconds per schedule for peers, 0: none (default 60)"
    )
    parser.add_argument("--answers", type=Path, help="file of peers' answers: read, and new ones added")
    parser.add_argument(
        "--operators", type=int, default=100, help="size of generated schedules (default 100)"
    )
    parser.add_argument(
        "--per-family", type=int, default=10, help="generated schedules per family (default 10)"
    )
    parser.add_argument(
        "--search-limit",
        type=float,
        default=60.0,
        help="joint, everywhere: seconds per search, imports: per model (default 60)",
    )
    parser.add_argument(
        "--share", type=everywhere.Share.read, default=everywhere.Share(), help="everywhere: such as 1/41"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        help="joint, everywhere, imports, planning, layer-widths: such names",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        help="joint, everywhere, imports, planning, convergence: file of rows: read, and new ones added",
    )
    parser.add_argument(
        "--within", type=float, default=inf, help="everywhere, convergence: seconds after which none begins"
    )
    searches = parser.add_argument_group("convergence")
    searches.add_argument("--quick", action="store_true", help="one small case instead of all")
    searches.add_argument(
        "--workloads",
        nargs="+",
        default=(),
        help="built-in ones (default: PHAZE's and WHAM's)",
    )
    searches.add_argument(
        "--strategies", nargs="+", default=(), help="some of the registered ones (default: all)"
    )
    searches.add_argument("--spaces", nargs="+", default=("phaze", "default"))
    searches.add_argument("--evaluations", type=int, default=200, help="budget of a search (default 200)")
    searches.add_argument("--seeds", type=int, default=3, help="runs of seeded strategies (default 3)")
    searches.add_argument("--devices", type=int, default=1024)
    searches.add_argument("--workers", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument(
        "--out", type=Path, help="a folder (.md, .json and .svg per part), or one .md or .json"
    )
    return parser


if __name__ == "__main__":
    main()
