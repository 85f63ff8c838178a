"""Reading JSON strictly, writing files that are whole or not there, and telling files by their content."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from phaze.digest import file_sha256
from phaze.errors import InputError
from phaze.text_file import MIB, read_text, shortened

LARGEST_BYTES = 256 * MIB
"""Of a JSON document."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content`; an interruption leaves the old file or none, never half of one.

    A new file has the permissions that the user's mask leaves, another one keeps its own. Raises InputError.
    """
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        target = path.resolve()
        mode = target.stat().st_mode if target.exists() else None
        if mode is None or stat.S_ISREG(mode):
            _replace(target, data, mode)
        else:
            _pass_on(target, data)
    except (OSError, RuntimeError, ValueError) as error:
        raise _unwritable(path, error) from error


def _replace(target: Path, data: bytes, mode: int | None) -> None:
    """Write a regular file beside its place and rename it into that."""
    temporary, handle = _beside(target)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _pass_on(target: Path, data: bytes) -> None:
    """Write into what is there: a device, a pipe that somebody reads."""
    handle = os.open(target, os.O_WRONLY | os.O_NONBLOCK)  # a pipe without a reader is an error, not a wait
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def make_folder(path: Path) -> None:
    """Make a folder with its parents. Raises InputError where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot make folder {path}: {getattr(error, 'strerror', error)}") from error


def check_writable(path: Path) -> None:
    """InputError where `write_atomically` would fail; to be asked before the work, not after it."""
    try:
        target = path.resolve()
        if target.is_file() or not target.exists():
            temporary, handle = _beside(target)
            os.close(handle)
            temporary.unlink()
        else:
            os.close(os.open(target, os.O_WRONLY | os.O_NONBLOCK))
    except (OSError, RuntimeError, ValueError) as error:
        raise _unwritable(path, error) from error


def file_name(text: str) -> str:
    """A name as that of one file: characters unfit for it become `-`."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-.")[:150] or "run"


def _beside(target: Path) -> tuple[Path, int]:
    """A new empty file in the folder of a file, its permissions those that the user's mask leaves."""
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}")
    return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def _unwritable(path: Path, error: Exception) -> InputError:
    """Why a file cannot be written; Linux says so of a loop of links and of a name with a NUL in other words."""
    why = (
        (isinstance(error, IsADirectoryError) and "is a folder") or getattr(error, "strerror", None) or error
    )
    return InputError(f"cannot write {path}: {why}")


def read_json(path: Path) -> Any:  # noqa: ANN401 - a JSON document is any of six types
    """The document in a file; InputError where it cannot be read, is not JSON, or repeats a key."""
    return parse_json(read_text(path, LARGEST_BYTES), str(path))


def parse_json(text: str, where: str) -> Any:  # noqa: ANN401 - a JSON document is any of six types
    """The document in a text; InputError where it is not JSON, or repeats a key."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            msg = f"key {shortened(repr(key), 60)} appears twice in one object"
            raise ValueError(msg)
        result[key] = value
    return result


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is not a JSON number"
    raise ValueError(msg)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        msg = f"{shortened(text, 60)} is too large for a number"
        raise ValueError(msg)
    return number


def file_hashes(inputs: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of every file, by what it is. Raises InputError where one cannot be read."""
    return {name: _sha256(path) for name, path in inputs.items()}


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
