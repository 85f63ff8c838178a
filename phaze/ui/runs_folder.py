"""The folder of runs that the page shows and writes to, and nothing beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from phaze.errors import InputError
from phaze.runs.atomic_files import file_name
from phaze.runs.run_listing import ListedRun, list_runs

FILES = (
    "result.json",
    "architecture.yaml",
    "frontier.csv",
    "designs.csv",
    "manifest.json",
    "log.txt",
    "report.html",
)
"""Files of a run that may be taken away."""

_NAME = re.compile(r"[^/\\\x00]+")


@dataclass(frozen=True)
class RunsFolder:
    """A folder whose folders are runs."""

    path: Path

    def runs(self) -> Sequence[ListedRun]:
        """All of them, the latest first; none where the folder is not there yet."""
        return list_runs(self.path) if self.path.is_dir() else ()

    def run(self, name: str) -> Path:
        """The folder of a run. Raises InputError for a name that leads out of here, or is nobody's."""
        place = self.path / name
        if not _NAME.fullmatch(name) or name in (".", "..") or place.is_symlink() or not place.is_dir():
            raise InputError(f"there is no run {name!r} here")
        return place

    def file(self, name: str, file: str) -> Path:
        """A file of a run. Raises InputError where it has none of that name."""
        place = self.run(name) / file
        if file not in FILES or place.is_symlink() or not place.is_file():
            raise InputError(f"{name} has no file {file!r}")
        return place

    def free(self, name: str, taken: Sequence[str] = ()) -> str:
        """A name for a new run that nothing has yet: NAME-UTCTIME, and a number behind it where that is taken."""
        first = f"{file_name(name)}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        names = (first, *(f"{first}-{number}" for number in range(2, 10_000)))
        return next(one for one in names if one not in taken and not (self.path / one).exists())
