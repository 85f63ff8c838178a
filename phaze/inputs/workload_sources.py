"""Workloads as they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.workload.workload import Workload

    Source = str | Path | Workload
    """A built-in name, a file, `hf:CONFIG.JSON`, or a workload that is at hand."""


def name_of(source: Source) -> str:
    """Name of a workload: its own, or as it was asked for."""
    return str(source) if isinstance(source, str | Path) else source.name


def one_workload(sources: Sequence[Source]) -> Source:
    """The workload asked for. InputError where `--workload` was given more than once."""
    if len(sources) != 1:
        names = ", ".join(map(name_of, sources))
        raise InputError(
            f"--workload is given {len(sources)} times ({names}); only dse run looks for one design "
            "for several workloads, so give one"
        )
    return sources[0]
