"""`dse solve schedule|placement`: the solvers alone, on an instance file."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from phaze.cli import options as opt
from phaze.cli.completion import one_of
from phaze.cli.manual.app import App

app = App(name="solve", help="The solvers alone, on an instance file.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="Instance in JSON.", metavar="FILE")]
_Problem = TypeVar("_Problem")


@app.command()
def schedule(
    file: File,
    method: Annotated[
        str,
        typer.Option(
            help="exact, ilp or critical-path.", autocompletion=one_of("exact", "ilp", "critical-path")
        ),
    ] = "exact",
    time_limit: opt.TimeLimit = "60s",
    gantt: Annotated[
        Path | None, typer.Option(help="Draw the schedule into this file, .svg or .html.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Schedule the operators of one layer on tensor and vector cores.

    Examples:
        dse solve schedule layer.json --time-limit 10s --gantt layer.svg
        dse solve schedule layer.json --method critical-path --json

    Exit codes: 3, 4

    See also: dse solve placement.
    """
    from phaze.inputs.named_choices import choose
    from phaze.quantity import parse_time
    from phaze.report.gantt import gantt as chart
    from phaze.report.gantt_file import check_gantt_file, write_gantt
    from phaze.solvers.scheduling import InstanceError, Method, read_instance
    from phaze.solvers.scheduling import schedule as solve

    chosen, limit = choose(Method, method, "--method"), parse_time(time_limit, "--time-limit")
    problem = _read(file, read_instance, InstanceError)
    if gantt is not None:
        check_gantt_file(gantt)
    result = solve(problem, chosen, limit)
    if gantt is not None:
        write_gantt(chart(problem, result, file.stem), gantt)
    document = {
        "status": result.status.value,
        "optimal": result.optimal,
        "method": result.method.value,
        "makespan_s": _finite(result.makespan_s),
        "lower_bound_s": _finite(result.lower_bound_s),
        "gap": _finite(result.gap),
        "runtime_s": result.runtime_s,
        "starts_s": dict(result.starts_s),
        "ends_s": dict(result.ends_s),
        "parallel": list(result.parallel),
        "cores": {name: list(cores) for name, cores in result.cores.items()},
    }
    units = {operator.id: operator.units for operator in problem.operators}
    rows = [
        {
            "operator": name,
            "units": "+".join(units[name]),
            "start_s": start,
            "end_s": result.ends_s[name],
            "cores": "all" if name in result.parallel else " ".join(result.cores[name]),
        }
        for name, start in sorted(result.starts_s.items(), key=lambda item: item[1])
    ]
    _show(document, rows, json=json)


@app.command()
def placement(
    file: File,
    compat: Annotated[
        str | None,
        typer.Option(
            help="phaze: PHAZE's rules instead of the instance's own.", autocompletion=one_of("phaze")
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Split layers into pipeline stages, and choose data and tensor parallelism and the stages' options.

    Examples:
        dse solve placement chain.json
        dse solve placement chain.json --compat phaze --json

    Exit codes: 3, 4

    See also: dse solve schedule.
    """
    from phaze.cli.solve_placement import Compat, placement_answer
    from phaze.inputs.named_choices import choose
    from phaze.solvers.placement import InstanceError

    rules = None if compat is None else choose(Compat, compat, "--compat")
    document, rows = _read(file, lambda data: placement_answer(data, rules), InstanceError)
    _show(document, rows, json=json)


def _read(file: Path, reader: Callable[[object], _Problem], error_type: type[ValueError]) -> _Problem:
    """The problem in a file; InputError names the file and the JSON path at fault."""
    from phaze.errors import InputError
    from phaze.runs.atomic_files import read_json

    data = read_json(file)
    try:
        return reader(data)
    except error_type as error:
        raise InputError(f"{file}: {error}") from error


def _finite(value: float | None) -> float | None:
    """JSON knows no infinity: an unknown makespan is null."""
    return value if value is not None and math.isfinite(value) else None


def _show(document: dict[str, Any], rows: list[dict[str, object]], *, json: bool) -> None:
    """Print the answer; without one, leave with the exit code that says why."""
    from phaze.cli.output import print_json, print_rows
    from phaze.errors import InfeasibleError, OutOfTimeError

    if json:
        print_json(document)
    else:
        print_rows(rows)
        for name, value in document.items():
            if not isinstance(value, dict | list):
                typer.echo(f"{name}: {_text(value)}")
    codes = {"infeasible": InfeasibleError.exit_code, "no_solution": OutOfTimeError.exit_code}
    raise typer.Exit(codes.get(document["status"], 0))


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.9g}" if isinstance(value, float) else str(value)
