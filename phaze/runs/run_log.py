"""The log of a run directory: what a search did when, line by line, so that a killed run leaves it behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from phaze import __version__
from phaze.errors import InputError
from phaze.explore.request.search_progress import Progress
from phaze.runs.run_lock import LOCK

LOG = "log.txt"
EVERY_S = 1.0
"""Least time between two lines of one stage."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class LoggedProgress:
    """A `phaze.explore.request.search_progress.Progress` that writes down what it passes on.

    A line when a stage begins, at most one a second within it, and its last report when it ends.
    """

    progress: Progress
    file: TextIO
    now: Callable[[], datetime] = _now
    _stage: str = ""
    _untold: str = ""
    _last: datetime = field(default=datetime.min.replace(tzinfo=UTC))

    def update(self, stage: str, done: int, total: int, note: str) -> None:
        """Pass on, and write down."""
        line = f"{stage}: {done:,}" + (f" of {total:,}" if total else "") + (f"; {note}" if note else "")
        if stage != self._stage:
            self.flush()
        if stage != self._stage or (self.now() - self._last).total_seconds() >= EVERY_S:
            self.write(line)
        else:
            self._untold = line
        self._stage = stage
        self.progress.update(stage, done, total, note)

    def flush(self) -> None:
        """Write down what was held back."""
        if self._untold:
            self.write(self._untold)

    def write(self, text: str) -> None:
        """One line, at once in the file."""
        self._last, self._untold = self.now(), ""
        self.file.write(f"{self._last.isoformat(timespec='milliseconds')}  {' '.join(text.split())}\n")


def is_log(path: Path) -> bool:
    """Whether a file is the log of a run."""
    try:
        with path.open("rb") as file:
            return b"started, phaze-dse " in file.read(200)
    except OSError:
        return False


@contextmanager
def logged_progress(
    folder: Path, progress: Progress, command: Sequence[str] = ()
) -> Iterator[LoggedProgress]:
    """Progress that is also written to `log.txt` of a folder, after what earlier runs left there.

    A run that fails with nothing else in its folder leaves no log either; one that is killed does.
    """
    path = folder / LOG
    try:
        file = path.open("a", encoding="utf-8", buffering=1)  # by lines
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    with file:
        log = LoggedProgress(progress, file)
        log.write(
            f"started, phaze-dse {__version__}: {' '.join(['dse', *command]) if command else 'from Python'}"
        )
        try:
            yield log
        except BaseException as error:
            log.flush()
            log.write(f"ended without an answer: {type(error).__name__}: {error}")
            if {item.name for item in folder.iterdir()} <= {LOG, LOCK}:
                path.unlink()
            raise
        log.flush()
        log.write("ended")
