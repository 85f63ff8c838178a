"""`dse solve schedule|placement|fleet|layers`: the solvers alone, on an instance file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze.cli import shared_options as opt
from phaze.cli.manual.typer_app import App
from phaze.cli.shell_completion import one_of

if TYPE_CHECKING:
    from phaze.solvers.placement import PlacementResult
    from phaze.solvers.placement.general import GeneralResult


# The result document, and a row of the table for each stage.
Answer = tuple[dict[str, Any], list[dict[str, object]]]


def placement_answer(result: PlacementResult | GeneralResult) -> Answer:
    """A plan as it is told."""
    from phaze.solvers.placement.general import GeneralResult

    return _graph_answer(result) if isinstance(result, GeneralResult) else _chain_answer(result)


def _chain_answer(result: PlacementResult) -> Answer:
    document = {
        "status": result.status.value,
        "time_per_batch_s": result.time_per_batch_s,
        "num_stages": result.num_stages,
        "data_parallel": result.data_parallel,
        "tensor_parallel": result.tensor_parallel,
        "stages": [{"layers": list(s.layers), "devices": s.devices} for s in result.stages],
        "runtime_s": result.runtime_s,
    }
    return document, _stage_rows(document)


def _graph_answer(result: GeneralResult) -> Answer:
    widths = {stage.tensor_parallel for stage in result.stages}
    document = {
        "status": result.status.value,
        "time_per_batch_s": result.time_per_batch_s,
        "num_stages": result.num_stages,
        "depth": result.depth,
        "data_parallel": result.data_parallel,
        "tensor_parallel": widths.pop() if len(widths) == 1 else None,
        "devices_used": result.devices_used,
        "stages": [
            {
                "layers": list(stage.layers),
                "devices": stage.devices,
                "device_type": stage.device_type,
                "tensor_parallel": stage.tensor_parallel,
                "recompute": stage.recompute.value,
                "zero": stage.zero,
            }
            for stage in result.stages
        ],
        "runtime_s": result.runtime_s,
    }
    return document, _stage_rows(document)


def _stage_rows(document: dict[str, Any]) -> list[dict[str, object]]:
    """The stages as rows of a table."""
    return [{"stage": i, **s, "layers": _layer_span(s["layers"])} for i, s in enumerate(document["stages"])]


def _layer_span(layers: Sequence[int]) -> str:
    """Layer ids, a run of consecutive ones as first-last."""
    consecutive = list(layers) == list(range(layers[0], layers[0] + len(layers)))
    return f"{layers[0]}-{layers[-1]}" if consecutive and len(layers) > 2 else " ".join(map(str, layers))


app = App(name="solve", help="The solvers alone, on an instance file.")
File = Annotated[Path, typer.Argument(help="Instance in JSON.", metavar="FILE")]


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
    from phaze.inputs.instances.instance_files import schedule_problem
    from phaze.inputs.named_choices import choose
    from phaze.quantity import parse_time
    from phaze.report.charts.gantt_chart import gantt as chart
    from phaze.report.charts.gantt_files import check_gantt_file, write_gantt
    from phaze.solvers.scheduling import Method
    from phaze.solvers.scheduling import schedule as solve

    chosen, limit = choose(Method, method, "--method"), parse_time(time_limit, "--time-limit")
    problem = schedule_problem(file)
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

    from phaze.inputs.instances.instance_files import Compat, placed
    from phaze.inputs.named_choices import choose

    rules = None if compat is None else choose(Compat, compat, "--compat")
    document, rows = placement_answer(placed(file, rules))
    _show(document, rows, json=json)


@app.command()
def fleet(
    file: File,
    within: Annotated[
        str | None,
        typer.Option(
            help="The cheapest fleet that serves all requests in this time, for instance 1s: arrival rates."
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Choose which devices to rent to serve given requests, within a budget and what is available.

    Examples:
        dse solve fleet rent.json
        dse solve fleet rent.json --within 30s --json

    Exit codes: 3

    See also: dse plan serving, for the rates of a configuration.
    """
    from phaze.inputs.instances.instance_files import rented
    from phaze.quantity import parse_time

    within_s = None if within is None else parse_time(within, "--within")
    problem, names, found = rented(file, within_s)
    shared = [] if found.shares is None else found.shares.tolist()
    rows: list[dict[str, object]] = [
        {"config": config.name, "replicas": n, **dict(zip(names, shares, strict=True))}
        for config, n, shares in zip(problem.configs, found.replicas, shared, strict=True)
        if n
    ]
    document = {
        "status": "optimal",
        "time_s": found.seconds,
        "lower_bound_s": found.lower_bound_s if within_s is None else None,
        "price_usd_per_hour": found.price_usd,
        "fleet": rows,
    }
    _show(document, rows, json=json)


@app.command()
def layers(
    file: File,
    memory: Annotated[
        str | None,
        typer.Option(
            help="What all layers may hold, for instance 40GB: instead of the instance's own limit."
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Choose a strategy for each layer: the least time within memory, with the time of changes between layers.

    Examples:
        dse solve layers layers.json
        dse solve layers layers.json --memory 60GB --json

    Exit codes: 3

    See also: dse plan, for one choice for all layers.
    """
    from phaze.inputs.instances.instance_files import chosen_layers
    from phaze.quantity import parse_size

    named, found = chosen_layers(file, None if memory is None else parse_size(memory, "--memory"))
    rows = named.rows(found.strategies)
    document = {
        "status": found.status.value,
        "time_s": found.time_s,
        "lower_bound_s": found.lower_bound_s,
        "gap": found.gap,
        "memory_bytes": found.memory_bytes,
        "memory_limit_bytes": named.problem.limit_bytes,
        "runtime_s": found.runtime_s,
        "layers": rows,
    }
    _show(document, rows, json=json)


@app.command()
def instances(file: File, json: opt.Json = False) -> None:
    """Split a batch among instances of a model on a host's cores: the least time, from instances that were measured.

    Examples:
        dse solve instances profiles.json
        dse solve instances profiles.json --json

    Exit codes: 3

    See also: dse solve hosts, for jobs that share a host.
    """
    from phaze.inputs.instances.instance_files import split_on_cores

    told, found = split_on_cores(file)
    rows: list[dict[str, object]] = [
        {"instances": count, "cores": one.cores, "batch": one.batch, "latency_s": one.latency_s}
        for one, count in found.instances
    ]
    document = {
        "status": "optimal",
        "latency_s": found.latency_s,
        "samples_per_s": told.batch / found.latency_s,
        "cores_used": found.cores,
        "instances": rows,
    }
    _show(document, rows, json=json)


@app.command()
def hosts(file: File, json: opt.Json = False) -> None:
    """Share a host's cores and memory among jobs, none of which becomes slower than with its fair share.

    Examples:
        dse solve hosts jobs.json
        dse solve hosts jobs.json --json

    Exit codes: 3

    See also: dse plan, for the samples a second of a job's accelerators.
    """
    from phaze.inputs.instances.instance_files import shared_host

    told, found = shared_host(file)
    rows: list[dict[str, object]] = [
        {
            "job": job.name,
            "cores": job.uses[n].cores,
            "memory_bytes": job.uses[n].memory_bytes,
            "samples_per_s": job.uses[n].samples_per_s,
            "over_fair_share": job.gains[n],
        }
        for job, n in zip(told.jobs, found.uses, strict=True)
    ]
    _show({"status": "optimal", "gain": found.gain, "jobs": rows}, rows, json=json)


def _finite(value: float | None) -> float | None:
    """JSON knows no infinity: an unknown makespan is null."""
    return value if value is not None and math.isfinite(value) else None


def _show(document: dict[str, Any], rows: list[dict[str, object]], *, json: bool) -> None:
    """Print the answer; without one, leave with the exit code that says why."""
    from phaze.cli.console_output import print_json, print_rows
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
