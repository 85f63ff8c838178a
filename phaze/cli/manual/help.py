"""`dse help VERB`: the manual page of a verb."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def command(
    typed: typer.Context,
    verb: Annotated[
        list[str] | None, typer.Argument(help="Verb, for instance run, or plan serving.", metavar="[VERB]...")
    ] = None,
) -> None:
    """Show the manual page of a verb; without one, all verbs.

    Examples:
        dse help run
        dse help plan serving

    See also: dse explain, for the meaning of a word, a field or an answer.
    """
    from phaze.cli.manual.manual_page import page

    root = typed.find_root()
    typer.echo(page(_found(root.command, verb or []), " ".join(["dse", *(verb or [])])), nl=False)


def _found(command: Any, words: list[str]) -> Any:  # noqa: ANN401 - typer's click is vendored, its types too
    """The command of that name. Raises InputError with the nearest ones."""
    from phaze.errors import InputError
    from phaze.inputs.named_choices import nearest

    for k, word in enumerate(words):
        known = getattr(command, "commands", {})
        if word not in known:
            before = " ".join(["dse", *words[:k]])
            raise InputError(f"{before} has no command {word!r}{nearest(word, known)}")
        command = known[word]
    return command
