"""Looks that long work takes at whether it is still wanted."""

from __future__ import annotations

from collections.abc import Callable

Look = Callable[[], object]
"""Called between the steps of long work; what it raises ends the work, of which nothing is left half done."""


def wanted() -> None:
    """Work that is wanted until it is done."""
