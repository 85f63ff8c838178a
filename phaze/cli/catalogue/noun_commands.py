"""The commands every noun has: `dse NOUN` and `dse NOUN list`, `dse NOUN show NAME`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer

from phaze.cli import shared_options as opt
from phaze.cli.manual.typer_app import App
from phaze.cli.shell_completion import Completer

Row = Mapping[str, object]


def noun_app(
    name: str,
    what: str,
    rows: Callable[[], Sequence[Row]],
    show: Callable[[str], str] | None,
    names: Completer | None = None,
    example: str = "default",
    hidden: Sequence[str] = (),
    note: str = "",
) -> App:
    """The typer application of a noun; `rows` describes each item, `show` gives its YAML file.

    Without `show` the noun brings a command of its own. `names`: what a shell offers to show; `example`: one of it.
    `hidden`: what documents tell and tables have no room for. `note`: what a reader of the table has to know.
    """
    app = App(name=name, help=f"List or show {what}.", invoke_without_command=True)
    lists = f"List the built-in {what}.\n\nExamples:\n  dse {name} list\n  dse {name} list --json"
    shows = f"Print the YAML file, every number with its source.\n\nExamples:\n  dse {name} show {example}"

    def print_list(json: bool) -> None:
        from phaze.cli.console_output import print_json, print_rows

        items = [dict(row) for row in rows()]
        if json:
            print_json(items)
        else:
            print_rows([{k: v for k, v in item.items() if k not in hidden} for item in items], note)

    @app.callback()
    def default(context: typer.Context, json: opt.Json = False) -> None:
        if context.invoked_subcommand is None:
            print_list(json)

    @app.command("list", help=lists)
    def list_(json: opt.Json = False) -> None:
        print_list(json)

    if show is None:
        return app

    named = typer.Argument(help="Name or path.", metavar="NAME", autocompletion=names)

    @app.command("show", help=shows)
    def show_(item: str = named) -> None:
        typer.echo(show(item), nl=False)

    return app


def write_new(name: str, make_text: Callable[[str], str]) -> Path:
    """Write a new YAML file, named by a name or a path; `make_text` gives its text for its stem.

    Raises InputError where it exists already or cannot be written.
    """
    from phaze.errors import InputError

    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    text = make_text(path.stem)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(f"{path} exists; give another name") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    return path
