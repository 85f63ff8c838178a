"""`dse trace`: one iteration of a run in time."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import shared_options as opt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phaze.explore.documents.result_document import ResultDocument
    from phaze.parallel.timeline.replayed_plan import ReplayedPlan


class Format(StrEnum):
    """What to write."""

    JSON = "json"
    SVG = "svg"


def command(
    run: Annotated[Path, typer.Argument(help="Run directory of dse run.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="File to write (default: trace.json in RUN).")] = None,
    format: Annotated[
        Format, typer.Option("--format", help="json (Perfetto, chrome://tracing) or svg (Gantt chart).")
    ] = Format.JSON,
    workload: Annotated[
        str | None, typer.Option("--workload", "-w", help="Which one, of several (default: the first).")
    ] = None,
    per_stage: Annotated[
        bool, typer.Option("--per-stage", help="The pipeline with a design for every stage.")
    ] = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write one iteration in time: stages as processes; passes, layers, links and cores as threads.

    Open the JSON file at ui.perfetto.dev or in chrome://tracing. Every microbatch is there pass by pass and layer by
    layer, the first one operator by operator. A name that ends in .gz is compressed.

    Examples:
        dse trace results/gpt3-400W --out trace.json.gz
        dse trace results/gpt3-400W --format svg --out iteration.svg

    See also: dse report, which draws the same iteration.
    """
    from phaze.cli.console_output import say
    from phaze.cli.records.report import beside
    from phaze.runs.atomic_files import check_writable, write_atomically
    from phaze.runs.run_directory import load_run

    document = load_run(run)
    target = out or beside(run, f"trace.{format.value}")
    check_writable(target)
    name = _workload(document, run, workload)
    title = f"{run.resolve().name}: {name} on {document.best.id}"
    if per_stage:
        title = f"{run.resolve().name}: {name} on a design for every stage"
        text = _per_stage(document, run, name, title, format)
    else:
        text = _planned(document, run, name, title, format)
    write_atomically(target, _packed(text, target))
    say(f"trace: {target}", quiet=quiet)


def _workload(document: ResultDocument, run: Path, workload: str | None) -> str:
    """The workload that is asked for, or the first. Raises InputError for one that the run does not have."""
    from phaze.errors import InputError
    from phaze.inputs.named_choices import nearest

    names = list(document.best.workloads)
    if workload is not None and workload not in names:
        raise InputError(
            f"{run} has no workload {workload!r}{nearest(workload, names)}; it has {', '.join(names)}"
        )
    return workload or names[0]


def _planned(document: ResultDocument, run: Path, workload: str, title: str, form: Format) -> str:
    """The winner's plan."""
    from phaze.cli.records.recorded_request import request_of
    from phaze.explore.answers.replayed_plans import replayed_plans

    played = replayed_plans(document, request_of(document, run))[workload]
    stages = document.best.workloads[workload].placement.stages
    return _drawn(played, workload, title, form, [stage.layers for stage in stages])


def _per_stage(document: ResultDocument, run: Path, workload: str, title: str, form: Format) -> str:
    """The plan of the pipeline with a design for every stage."""
    from phaze.cli.records.recorded_request import request_of
    from phaze.errors import InputError
    from phaze.explore.answers.replayed_plans import per_stage_plan

    played = per_stage_plan(document, request_of(document, run))
    if played is None or document.wham is None or document.wham.per_stage is None:
        raise InputError(f"{run} holds no pipeline with a design per stage; see dse run --designs per-stage")
    stages = document.wham.per_stage.stages
    layers, designs = [stage.layers for stage in stages], [stage.id for stage in stages]
    return _drawn(played, workload, title, form, layers, designs)


def _drawn(
    played: ReplayedPlan,
    workload: str,
    title: str,
    form: Format,
    layers: Sequence[Sequence[str]],
    designs: Sequence[str] = (),
) -> str:
    from phaze.report.trace.chrome_trace import written
    from phaze.report.trace.iteration_svg import draw_iteration, iteration_picture
    from phaze.report.trace.iteration_trace import plan_trace

    if form is Format.SVG:
        return draw_iteration(iteration_picture(played), title)
    return written(plan_trace(played, title, workload, layers, designs))


def _packed(text: str, target: Path) -> str | bytes:
    import gzip

    return gzip.compress(text.encode(), mtime=0) if target.suffix == ".gz" else text
