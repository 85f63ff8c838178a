"""`dse workloads`: the built-in models, what any model consists of, and a file to start one's own from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.catalogue.noun_commands import Row, noun_app, write_new
from phaze.cli.shell_completion import workloads


def _rows() -> Sequence[Row]:
    from phaze.api.catalogue_verbs import workloads

    return workloads().rows


app = noun_app(
    "workloads",
    "workloads",
    _rows,
    None,
    note="no global batch: 4 million tokens, or 32 samples per device where samples have none",
)


@app.command("show")
def show(
    workload: opt.WorkloadArgument,
    mode: opt.ModeOption = "training",
    attention: opt.Attention = "flash",
    bind: opt.Bind = None,
    microbatch: opt.Microbatch = 1,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the workload file instead, every number with its source.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Parameters, FLOPs, bytes and arithmetic intensity, per operator kind and per layer kind.

    Examples:
        dse workloads show resnet50 --mode prefill
        dse workloads show gpt3 --yaml

    See also: dse graph for operators.
    """
    from phaze.cli.console_output import console, print_json
    from phaze.inputs.task_inputs import open_workload
    from phaze.report.terminal.workload_tables import overview_document, overview_tables
    from phaze.workload.workload_overview import overview

    if yaml:
        typer.echo(_file(workload), nl=False)
        return
    model = open_workload(workload, mode=mode, attention=attention, bind=bind or ())
    figures = overview(model, microbatch)
    if json:
        print_json(overview_document(model, figures))
        return
    screen = console()
    for table in overview_tables(model, figures):
        screen.print(table)
        screen.print()


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the workload, or path of the file.", metavar="NAME")],
    family: Annotated[str, typer.Option(help="Family whose smallest model to start from.")] = "decoder",
    like: Annotated[
        str | None, typer.Option(help="Built-in workload to start from instead.", autocompletion=workloads)
    ] = None,
) -> None:
    """Write a commented workload file to start from.

    Examples:
        dse workloads new mymodel --like mixtral-8x7b
        dse workloads new folder/mymodel.yaml --family encoder

    See also: dse workloads show.
    """
    from phaze.inputs.named_choices import choose
    from phaze.workload.families.family_registry import Family
    from phaze.workload.workload_file_guide import new_workload_text

    kind = choose(Family, family, "--family")
    path = write_new(name, lambda stem: new_workload_text(stem, kind, like))
    typer.echo(f"{path}: change it, then run it with dse evaluate --arch h100 --workload {path}")


def _file(name: str) -> str:
    """Text of a workload file. InputError for a model that is no YAML file."""
    from phaze.errors import InputError
    from phaze.workload.workload_file import parse_spec
    from phaze.workload.workload_library import find_workload
    from phaze.yaml_file import yaml_text

    if name.endswith(".onnx"):
        raise InputError(f"{name} is no YAML file; --yaml prints workload files only")
    text = yaml_text(path := find_workload(name))
    parse_spec(text, str(path))
    return text
