"""`dse spaces`: the built-in design spaces, what a space holds, and a file to start one from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.catalogue.noun_commands import Row, noun_app, write_new
from phaze.cli.shell_completion import spaces


def _rows() -> Sequence[Row]:
    from phaze.api.catalogue_verbs import spaces

    return spaces().rows


app = noun_app("spaces", "design spaces", _rows, None)


@app.command("show")
def show(
    space: Annotated[str, typer.Argument(help="Name or path.", metavar="NAME", autocompletion=spaces)],
    power: opt.Power = None,
    area: opt.Area = None,
    power_density: Annotated[
        str | None, typer.Option(help="TDP over silicon per accelerator, for instance 0.8W/mm2.")
    ] = None,
    tdp_margin: opt.TdpMargin = 1.0,
    fix: Annotated[
        list[str] | None,
        typer.Option(help="Hold a field at one value, FIELD=VALUE or hbm=hbm3x6.", metavar="FIELD=VALUE"),
    ] = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="Print the YAML file instead.")] = False,
    json: opt.Json = False,
) -> None:
    """Count a space before and after its constraints and under budgets, with its axes.

    Examples:
        dse spaces show default --power 400W
        dse spaces show default --fix tensor_cores=8 --json

    See also: dse run --space.
    """
    from phaze.cli.console_output import console, print_json
    from phaze.hardware.catalogue import Catalogue, find
    from phaze.hardware.spaces.space_census import census
    from phaze.hardware.spaces.space_file import load_space
    from phaze.hardware.spaces.space_fix import fix as fixed
    from phaze.inputs.options.search_options import BudgetOptions
    from phaze.inputs.task_inputs import make_budgets
    from phaze.quantity import parse_power_density
    from phaze.report.terminal.space_tables import document, print_space
    from phaze.yaml_file import yaml_text

    found = load_space(space)
    if yaml:
        typer.echo(yaml_text(find(Catalogue.SPACE, space)), nl=False)
        return
    density = parse_power_density(power_density, "--power-density") if power_density is not None else None
    limits = make_budgets(BudgetOptions(power=power, area=area, tdp_margin=tdp_margin))
    asked = fixed(found, fix or ())
    counted = census(asked, limits.power_w, limits.area_mm2, tdp_margin, density)
    if json:
        print_json(document(asked, counted))
    else:
        print_space(asked, counted, console())


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the space, or path of the file.", metavar="NAME")],
) -> None:
    """Write a commented space file to start from.

    Examples:
        dse spaces new myspace
        dse spaces new folder/myspace.yaml

    See also: dse explain for the fields.
    """
    from phaze.hardware.spaces.space_file import new_space_text

    path = write_new(name, new_space_text)
    typer.echo(f"{path}: change it, then look at it with dse spaces show {path}")
