"""Files that are whole or not there: written beside their place, flushed, then renamed into it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from phaze.errors import InputError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content`; an interruption leaves the old file or none, never half of one."""
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
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
