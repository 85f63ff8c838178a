"""The runs of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from phaze.errors import InputError
from phaze.explore.document import ResultDocument
from phaze.runs.directory import RESULT, load_run


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A folder that holds a run; `problem` says why its result cannot be read, where it cannot."""

    path: Path
    document: ResultDocument | None
    problem: str = ""


def list_runs(folder: Path) -> list[ListedRun]:
    """Runs directly inside a folder, the latest first. Raises InputError where there is no such folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    found = list(_runs(folder))
    return sorted(found, key=lambda run: (_started(run), run.path.name), reverse=True)


def _runs(folder: Path) -> Iterator[ListedRun]:
    for path in sorted(folder.iterdir()):
        if not (path / RESULT).is_file():
            continue
        try:
            yield ListedRun(path, load_run(path))
        except InputError as error:
            yield ListedRun(path, None, str(error))


def _started(run: ListedRun) -> str:
    return run.document.manifest.started_utc if run.document else ""
