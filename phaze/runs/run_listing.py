"""The runs of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from phaze.errors import InputError
from phaze.runs.document_formats import Answer, load_answer
from phaze.runs.run_directory import RESULT
from phaze.runs.run_log import LOG


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A folder that holds a run; `problem` says why its result cannot be read, where it cannot."""

    path: Path
    document: Answer | None
    problem: str = ""


def list_runs(folder: Path) -> list[ListedRun]:
    """Runs directly inside a folder, the latest first. Raises InputError where there is no such folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name the one that keeps runs (dse run makes results)")
    found = list(_runs(folder))
    return sorted(found, key=lambda run: (_started(run), run.path.name), reverse=True)


def _runs(folder: Path) -> Iterator[ListedRun]:
    for path in sorted(folder.iterdir()):
        if not (path / RESULT).is_file():
            if (path / LOG).is_file():
                yield ListedRun(path, None, f"{path} has no answer (yet); {LOG} tells how far it came")
            continue
        try:
            yield ListedRun(path, load_answer(path))
        except InputError as error:
            yield ListedRun(path, None, str(error))


def _started(run: ListedRun) -> str:
    manifest = run.document.manifest if run.document else None
    return manifest.started_utc if manifest else ""
