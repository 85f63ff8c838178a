"""Digests of content, the only home of them.

`digest` is one for equal values: what is remembered under it cannot be out of date. The bytes that it hashes tell
types apart, spell floats exactly, and depend on no order of a set or a mapping, no address, process or hash seed.
The SHA-256 ones are for documents and studies that others keep, who can check them with any tool.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Set
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

SIZE = 20
"""Bytes of a digest: two contents meet in one by chance once in 10^48 pairs."""

Write = Callable[[bytes], object]


def digest(*contents: object) -> str:
    """Hexadecimal digest of values: numbers, text, enums, arrays, and containers and classes of fields made of them.

    Raises TypeError for anything else: an object whose content is not known must not pass for another one.
    """
    found = hashlib.blake2b(digest_size=SIZE)
    _write(found.update, contents)
    return found.hexdigest()


def sha256_of(content: bytes) -> str:
    """SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def json_sha256(data: Any) -> str:  # noqa: ANN401 - any JSON
    """SHA-256 of JSON data with sorted keys, in hexadecimal."""
    return sha256_of(json.dumps(data, sort_keys=True).encode())


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def keyed_mark(key: bytes, value: bytes, size: int) -> bytes:
    """So many bytes that tell whether a value is still the one that was stored under a key."""
    return hashlib.blake2b(value, key=key, digest_size=size).digest()


def _write(write: Write, value: object) -> None:
    """One value: a letter for its kind, its length where that can vary, its content."""
    match value:
        case None | bool():
            write(b"N" if value is None else b"T" if value else b"F")
        case Enum():
            _text(write, b"e", f"{type(value).__qualname__}.{value.name}")
        case str():
            _text(write, b"s", value)
        case int():
            _text(write, b"i", str(value))
        case float():
            write(b"f" + struct.pack("<d", value))
        case bytes():
            write(b"b%d:" % len(value))
            write(value)
        case tuple() | list():
            write(b"l%d:" % len(value))
            for item in value:
                _write(write, item)
        case np.ndarray() | np.generic():
            _array(write, np.asarray(value))
        case Mapping():
            _unordered(write, b"m", value.items())
        case Set():
            _unordered(write, b"u", value)
        case _:
            _object(write, value)


def _text(write: Write, kind: bytes, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    write(kind + b"%d:" % len(data))
    write(data)


def _unordered(write: Write, kind: bytes, items: Set[object]) -> None:
    """Items in the order of their own digests."""
    marks = sorted(digest(item) for item in items)
    write(kind + b"%d:" % len(marks))
    for mark in marks:
        write(mark.encode())


def _array(write: Write, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    """Type, shape and cells in row-major order, however they lie in memory."""
    if array.dtype.hasobject:
        _text(write, b"o", str(array.shape))
        _write(write, array.ravel().tolist())
        return
    _text(write, b"a", f"{array.dtype.str}{array.shape}")
    write(np.ascontiguousarray(array).tobytes())


def _object(write: Write, value: object) -> None:
    """A dataclass or a pydantic model: its name and its fields."""
    kind: Any = type(value)  # a class can be hashed, whatever mypy thinks of `object`
    _text(write, b"c", f"{kind.__module__}.{kind.__qualname__}")
    for name in _fields(kind):
        _write(write, getattr(value, name))


@cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    """Names of the fields that make two objects equal. Raises TypeError for a class without such fields."""
    if found := tuple(_named(kind)):
        return found
    if dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel):
        return ()
    msg = f"no digest of {kind.__module__}.{kind.__qualname__}: its content is not known"
    raise TypeError(msg)


def _named(kind: type[Any]) -> Iterator[str]:
    if dataclasses.is_dataclass(kind):
        yield from (field.name for field in dataclasses.fields(kind) if field.compare)
    elif issubclass(kind, BaseModel):
        yield from kind.model_fields
