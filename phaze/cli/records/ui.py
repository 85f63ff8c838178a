"""`dse ui`: the runs of a folder, and questions, in a browser of this machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of run directories.")] = Path("results"),
    port: Annotated[int, typer.Option(help="Port (default: any that is free).", min=0, max=65535)] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser, too.")
    ] = True,
    quiet: opt.Quiet = False,
) -> None:
    """Show the runs of a folder in the browser, and ask new questions there; until Ctrl-C.

    The page is for this machine alone, under the token in its address. It writes nothing but runs into the folder.
    Needs two packages more: pip install '.[ui]' in a clone.

    Examples:
        dse ui
        dse ui results --port 8080 --no-browser

    See also: dse runs for the list; dse report for one run as a file.
    """
    from phaze.cli.console_output import say
    from phaze.errors import InputError

    try:
        from phaze.ui.server import local_server
    except ModuleNotFoundError as error:
        lacking = (error.name or "").partition(".")[0]
        if lacking not in ("starlette", "uvicorn"):
            raise
        raise InputError(f"dse ui needs {lacking}: pip install '.[ui]' in a clone of phaze") from error
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; dse ui needs a folder of runs")
    with local_server(folder, port) as server:
        typer.echo(server.address)
        say("Ctrl-C ends it", quiet=quiet)
        if browser and _has_desktop():
            import webbrowser

            webbrowser.open(server.address)
        with suppress(KeyboardInterrupt):  # that is how it ends
            server.run()


def _has_desktop() -> bool:
    """Whether a browser would open a window of its own, not take the terminal."""
    return sys.platform in ("win32", "darwin") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
