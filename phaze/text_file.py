"""Text of files, bounded, and text that is short enough to be shown."""

from __future__ import annotations

import os
from pathlib import Path

from phaze.errors import InputError

MIB = 2**20


def read_text(path: Path, most_bytes: int) -> str:
    """The text of a file, its line ends as in Python. Raises InputError where it cannot be read, or is too long."""
    try:
        with path.open("rb") as file:
            size = (
                os.fstat(file.fileno()).st_size or most_bytes
            )  # 0 of a pipe; a buffer of all that is asked is made
            data = file.read(min(size, most_bytes) + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise InputError(f"{str(path)!r}: not the name of a file ({error})") from error
    if len(data) > most_bytes:
        raise InputError(f"{path}: longer than the {most_bytes // MIB} MiB that a file of its kind may have")
    try:
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8") from error


def shortened(text: str, most: int) -> str:
    """A text of at most `most` characters; what is too much goes from its middle."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end - 5]} ... {text[-end:]}"
