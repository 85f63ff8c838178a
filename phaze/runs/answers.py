"""Answers that are kept only where a folder is named: those of verbs that take seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.explore.document import ResultDocument
from phaze.runs.directory import RESULT, run_directory, write_architecture, write_manifest
from phaze.runs.files import write_atomically

if TYPE_CHECKING:
    from phaze.runs.documents import Answer


@contextmanager
def kept(out: Path | None) -> Iterator[Callable[[Answer], None]]:
    """A function that keeps an answer in the folder, if one is named; that it can be written is known before.

    Raises InputError where the folder holds something, or cannot be written.
    """
    if out is None:
        yield lambda _: None
        return
    with run_directory(out) as folder:
        yield lambda document: write_answer(folder, document)


def write_answer(path: Path, document: Answer) -> None:
    """`manifest.json`, the winner where there is one, and last `result.json`: what `--json` prints."""
    if document.manifest is not None:
        write_manifest(path, document.manifest)
    if isinstance(document, ResultDocument):
        write_architecture(path, document.best)
    write_atomically(path / RESULT, document.model_dump_json(by_alias=True, indent=2) + "\n")
