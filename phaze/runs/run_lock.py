"""One process at a time in a run directory: a lock of the operating system, which ends with the process that has it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phaze.errors import InputError

LOCK = ".lock"
"""File of a run directory that is locked while somebody works there; left over from a killed run it means nothing."""


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises InputError where another process holds it.

    Without locks, on some network disks and on Windows, nobody is kept out.
    """
    path = folder / LOCK
    handle = _held(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held, so that nobody else's is removed
        os.close(handle)


def _held(path: Path) -> int:
    """An open handle of the lock file, locked as far as the disk knows locks."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from error
        try:
            _lock(handle)
        except BlockingIOError as error:
            os.close(handle)
            raise InputError(
                f"another dse is at work in {path.parent}; wait for it, or choose another --out"
            ) from error
        if _is_still(path, handle):
            return handle
        os.close(handle)  # whoever held it before has removed it meanwhile


def _lock(handle: int) -> None:
    """Raises BlockingIOError where another process has the lock.

    A lock of POSIX, not of BSD: copies of a process do not share it, and outlive nobody with it.
    """
    try:
        from fcntl import LOCK_EX, LOCK_NB, lockf
    except ImportError:
        return
    try:
        lockf(handle, LOCK_EX | LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise BlockingIOError(error.errno, error.strerror) from error


def _is_still(path: Path, handle: int) -> bool:
    """Whether the file that is open is the one at that path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
