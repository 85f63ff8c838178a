"""Reading JSON strictly, and writing files that are whole or not there.

A file is written beside its place, flushed, then renamed into it.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from phaze.errors import InputError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content`; an interruption leaves the old file or none, never half of one."""
    data = content.encode() if isinstance(content, str) else content
    handle, name = _beside(path)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Make a folder with its parents. Raises InputError where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {path}: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """InputError where `write_atomically` would fail; to be asked before the work, not after it."""
    handle, name = _beside(path)
    os.close(handle)
    Path(name).unlink()
    if path.is_dir():
        raise InputError(f"cannot write {path}: is a folder")


def _beside(path: Path) -> tuple[int, str]:
    """A new empty file in the folder of `path`."""
    try:
        return tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def read_json(path: Path) -> Any:  # noqa: ANN401 - a JSON document is any of six types
    """The document in a file; InputError where it cannot be read, is not JSON, or repeats a key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a UTF-8 text file") from error
    return parse_json(text, str(path))


def parse_json(text: str, where: str) -> Any:  # noqa: ANN401 - a JSON document is any of six types
    """The document in a text; InputError where it is not JSON, or repeats a key."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            msg = f"key {key!r} appears twice in one object"
            raise ValueError(msg)
        result[key] = value
    return result


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is not a JSON number"
    raise ValueError(msg)
