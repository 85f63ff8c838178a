"""The `dse` command: the verbs, and how errors become one line and an exit code.

Nothing heavy is imported here or at the top of a verb's module: `dse --help` answers at once.
"""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Annotated, NoReturn

import typer

from phaze import __version__
from phaze.cli.catalogue import archs, frameworks, graph, networks, plans, schema, spaces, workloads
from phaze.cli.console_output import print_error, say
from phaze.cli.interruption import INTERRUPTED
from phaze.cli.manual import help
from phaze.cli.manual.typer_app import App
from phaze.cli.questions import (
    calibrate,
    compare,
    evaluate,
    measure,
    plan,
    run,
    solve,
    sweep,
    validate,
    whatif,
)
from phaze.cli.records import cache, certify, diff, explain, pareto, replay, report, runs, trace, ui
from phaze.errors import InputError, PhazeError, Remark

# typer re-exports only the last class of its (vendored) chain ClickException > UsageError > BadParameter.
_ClickError: type[Exception] = typer.BadParameter.__mro__[2]

TRACEBACK = "DSE_TRACEBACK"
"""Environment variable under which a bug of ours ends in a stack trace instead of a sentence."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"phaze-dse {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Hold the options before the verb."""


def _app() -> App:
    """The application without verbs."""
    found = App(
        name="dse",
        help="Find the best accelerator for your models, and the best way to spread them over N of it.\n\n"
        "Examples:\n  dse run --workload gpt3 --power 400W\n  dse help run",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    found.callback()(_root)
    return found


app = _app()


_VERBS: Mapping[str, tuple[ModuleType, ...]] = {
    "Search": (run, sweep, plan, whatif),
    "Evaluate": (evaluate, compare, validate, measure, calibrate),
    "Read a run": (report, trace, pareto, explain, certify, runs, diff, replay, ui, cache),
    "Look around": (workloads, archs, spaces, networks, frameworks, plans, graph, schema, help),
    "Solvers alone": (solve,),
}
"""The verbs by group, as `dse --help` lists them."""

_BY_NAME = {one.__name__.rpartition(".")[2]: (one, group) for group, some in _VERBS.items() for one in some}


def _add(name: str, to: App) -> None:
    """Register a verb."""
    module, group = _BY_NAME[name]
    if hasattr(module, "app"):
        to.add_typer(module.app, rich_help_panel=group)
    else:
        to.command(name, rich_help_panel=group)(module.command)


for _name in _BY_NAME:
    _add(_name, app)
app.add_typer(networks.app, name="network", hidden=True)


def main() -> NoReturn:
    """Run the command line and leave with the exit code of what happened."""
    _open_streams()
    with warnings.catch_warnings():
        warnings.simplefilter("always", Remark)
        warnings.showwarning = _remark
        code = _guarded()
    sys.exit(code)


def _open_streams() -> None:
    """Both streams as text that shows anything; of those that came closed, stdout refuses and stderr forgets."""
    if sys.stdout is None:  # that is what Python makes of a closed one
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names from user files may hold what the terminal cannot show.
            stream.reconfigure(errors="backslashreplace")


def _guarded() -> int:
    """The exit code; every expected failure has printed one clear sentence on stderr."""
    try:
        _check_words(sys.argv)
        # Outside standalone mode typer returns the code of an Exit, 130 after Ctrl-C.
        code = _run()
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader (head, less) has left: not our failure; typer answers a closed pipe by SystemExit.
        _forget_stdout()
        return 0
    except Exception as error:
        if not isinstance(error, PhazeError | OSError | _ClickError) and os.environ.get(TRACEBACK):
            raise
        return _told(error)
    return code if isinstance(code, int) else 0


def _remark(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    """A remark as a sentence on stderr; a warning of another package is none of its user's business."""
    if issubclass(category, Remark):
        say(f"note: {message}", quiet=bool({"--quiet", "-q"} & set(sys.argv)))


@lru_cache(maxsize=1)
def commands() -> Callable[..., object]:
    """All commands, built once."""
    return typer.main.get_command(app)


def _commands_of(words: Sequence[str]) -> Callable[..., object]:
    """What reads a command line: of one that begins with a verb that one alone, a tenth of the work."""
    if not words or words[0] not in _BY_NAME or words[0] == "help":  # pages of all verbs
        return commands()
    alone = _app()
    _add(words[0], alone)
    return typer.main.get_command(alone)


def _run() -> object:
    """What the verb comes back with, its options at the defaults of the project where nothing is typed."""
    from phaze.cli.project_defaults import project_defaults

    defaults, file = project_defaults(commands)
    if file and not {"-q", "--quiet", "-h", "--help"} & {*sys.argv}:
        sys.stderr.write(f"dse: options that are not typed have the defaults of {file}\n")
    read = commands() if file else _commands_of(sys.argv[1:])
    return read(prog_name="dse", standalone_mode=False, default_map=defaults)


def _check_words(words: Sequence[str]) -> None:
    """Raises InputError for a word that is no text, which no document could hold."""
    for word in words:
        if not word.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in word):
            raise InputError(f"{word!a} is not a name in UTF-8; rename the file")


def _told(error: Exception) -> int:
    """Say what went wrong; the exit code of it."""
    if isinstance(error, PhazeError):
        print_error(error)
        return error.exit_code
    if isinstance(error, _ClickError):
        if text := _usage(error):
            print_error(text)
        return InputError.exit_code
    if isinstance(error, OSError):
        # What the system refuses: a full disk behind stdout or a file, a closed stdout, a missing permission.
        _forget_stdout()
        print_error(f"{error.filename or 'cannot write the answer'}: {error.strerror or error}")
        return InputError.exit_code
    what = f"{type(error).__name__}: {error}"[:300]
    print_error(f"internal error: {what} ({TRACEBACK}=1 shows where)")
    return 1


def _forget_stdout() -> None:
    """Python must not flush into stdout again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: BaseException) -> str:
    """The sentence of a wrong command line, and where to look."""
    context = getattr(error, "ctx", None)
    verb = f" {sys.argv[1]}" if sys.argv[1:] and sys.argv[1] in _BY_NAME else ""
    command = context.command_path if context is not None else f"dse{verb}"
    text = " ".join(getattr(error, "format_message", error.__str__)().split()).rstrip(".")
    for pattern, plain in _PLAIN.items():
        text = re.sub(pattern, plain, text)
    return f"{text} (see {command} --help)" if text else ""


_PLAIN = {
    r"Input should be a valid integer\b.*": "must be a whole number",
    r"Input should be a valid number\b.*": "must be a number",
    r"Input should be greater than or equal to (\S+)": r"must be at least \1",
    r"Input should be less than or equal to (\S+)": r"must be at most \1",
    r"Input should be": "must be",
    r"^Invalid value for '(-[^']*)': (?=must)": r"\1 ",
}
"""What typer and pydantic say of a value, and the same in plain words."""


if __name__ == "__main__":
    main()
