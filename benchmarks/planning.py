"""How long `dse plan` and `dse plan serving` take for every built-in model: processor time beside what it should be."""

from __future__ import annotations

import gc
import math
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from commands import KeptRows, Row
from report import Report
from tables import table
from timing import seconds

from phaze.cli.entry import OBJECTS
from phaze.errors import PhazeError
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.inputs.recipe_inputs import served_recipe
from phaze.parallel.serving import ServingOptions, Traffic, best_serving_plan
from phaze.workload.workload_library import builtin_names
from phaze.workload.workload_loader import load_workload

CHIP = "h100"
DEVICES = (1024, 64, 16_384)
WANTED_S, SERVED_S = 2.0, 1.0


@dataclass(frozen=True)
class Service:
    """A model served on so many chips, as `dse plan serving` asks without further options."""

    workload: str
    chip: str
    devices: int
    recipe: str | None = None

    @property
    def case(self) -> str:
        """The question in words."""
        recipe = f" in {self.recipe}" if self.recipe else ""
        return f"serving {self.workload}{recipe} on {self.devices} {self.chip}"


SERVICES = (
    Service("llama3-70b", "h200", 8),
    Service("deepseek-v3", "h200", 16, "fp8"),
    Service("deepseek-v3", "gb200", 72, "fp8"),
)


def measured(tell: Callable[[str], None], only: Sequence[str] = (), kept: Path | None = None) -> Report:
    """Every model on as many chips, and some services; `only`: models of such names.

    `kept`: file of rows that are done, which are not measured again, so that it can be run in parts.
    """
    gc.set_threshold(OBJECTS)  # as the command does
    _planned("gpt3-small", 8)  # loads what Python loads once
    done, rows = KeptRows(kept), []
    for case, work in _cases(only, done):
        tell(f"planning: {case}")
        rows.append(done.get(case, partial(_alone, case, work)))
    return Report("planning", _text(rows), rows)


def _cases(only: Sequence[str], done: KeptRows) -> Iterable[tuple[str, Callable[[], Row]]]:
    for devices, workload in product(DEVICES, builtin_names()):
        case = f"{workload} on {devices}"
        if not only or workload in only or case in done.cases:
            yield case, partial(_planned, workload, devices)
    for service in SERVICES:
        if not only or service.workload in only or service.case in done.cases:
            yield service.case, partial(_served, service)


def _alone(case: str, work: Callable[[], Row]) -> Row:
    """A row from a process of its own, which has loaded everything and worked nothing out."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return {"case": case, **pool.apply(work)}


def _planned(workload: str, devices: int) -> Row:
    asked = {"workload": workload, "devices": devices}
    try:
        found, spent = seconds(
            lambda: find_best_plan(
                Task(load_workload(workload), devices, load_network()), load_architecture(CHIP)
            )
        )
    except PhazeError as error:
        return asked | {"failed": str(error)}
    counts = found.certificate
    return asked | {
        "processor_s": spent,
        "plans": counts.space_size,
        "evaluated": counts.evaluated,
        "best_s": found.best.iteration_time_s,
    }


def _served(service: Service) -> Row:
    chip = load_architecture(service.chip)
    options = ServingOptions(recipe=served_recipe(service.recipe, to_table([chip])))
    found, spent = seconds(
        lambda: best_serving_plan(
            service.workload, chip, service.devices, load_network(), Traffic(2048, 256), options=options
        )
    )
    return {"service": service.case, "processor_s": spent, "tokens_per_s": found.tokens_per_s}


_HEAD = """# How long planning takes

The best training plan and the next four of built-in models on H100s, as `dse plan` finds them, and the best
serving plan of some models, each in a process of its own that has loaded what it needs and worked nothing out before:
seconds of processor time. A training plan should take {wanted:g} s, a serving plan {served:g} s; a command takes some
0.6 s more, for Python and what it loads. Models that take longest come first.

Again: `python benchmarks/run.py planning --runs FILE --out docs/benchmarks`; what is done is kept in the file, and
`--only MODEL ...` takes some.

"""


def _text(rows: Sequence[Row]) -> str:
    plans, services = ([row for row in rows if key in row] for key in ("workload", "service"))
    cells = {(row["workload"], row["devices"]): row for row in plans}
    columns = sorted({row["devices"] for row in plans})
    names = list(dict.fromkeys(row["workload"] for row in plans))
    head = ["model", *(f"{n:,} devices, s" for n in columns), "plans on the most devices"]
    body = [
        [name, *(_time(cells.get((name, n))) for n in columns), _plans(cells, name, columns)]
        for name in sorted(names, key=lambda name: -_longest(cells, name, columns))
    ]
    within = sum(row.get("processor_s", math.inf) <= WANTED_S for row in plans)
    said = (
        f"{len(names)} of {len(builtin_names())} models were asked; {within} of {len(plans)} training plans are found "
        f"within {WANTED_S:g} s. Empty cells were not asked.\n\n"
    )
    served = [[row["service"], _time(row), f"{row['tokens_per_s']:,.0f}"] for row in services]
    return (
        _HEAD.format(wanted=WANTED_S, served=SERVED_S)
        + said
        + table(head, body)
        + "\n\n"
        + table(["service", "s", "output tokens/s"], served)
        + "\n"
    )


def _time(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row['processor_s']:.1f}" if "processor_s" in row else "none fits"


def _plans(cells: dict[tuple[str, int], Row], name: str, columns: Sequence[int]) -> str:
    row = next((cells[name, n] for n in reversed(columns) if "plans" in cells.get((name, n), {})), None)
    return f"{row['plans']:,}" if row else ""


def _longest(cells: dict[tuple[str, int], Row], name: str, columns: Sequence[int]) -> float:
    return max(float(cells.get((name, n), {}).get("processor_s", 0.0)) for n in columns)
