"""Options of architectures that are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.inputs.options.option_model import Options, Packaged, option

if TYPE_CHECKING:
    from phaze.hardware.architecture import Architecture


_ARCH_AT_HAND = "str | Path | Architecture | Design | FrontierPoint | ScorePoint | Explored | Evaluated"


@dataclass(frozen=True, kw_only=True)
class OneArchOptions(Options):
    """One architecture that is given."""

    arch: str | Path | Architecture = option(
        ...,
        "Built-in chip, YAML file, run directory or RUN:ID.",
        *("--arch", "-a"),
        offers=Packaged.ARCHS,
        taken=_ARCH_AT_HAND,
        meaning="Built-in chip, YAML file, run directory, RUN:ID, an `Architecture`, or a result of another function.",
    )


@dataclass(frozen=True, kw_only=True)
class SeveralArchOptions(Options):
    """Architectures that are given side by side."""

    arch: Sequence[str | Path | Architecture] = option(
        ...,
        "Chips, YAML files or run directories.",
        *("--arch", "-a"),
        offers=Packaged.ARCHS,
        taken=f"Sequence[{_ARCH_AT_HAND}]",
        meaning="Built-in chips, YAML files, run directories, RUN:IDs, objects `Architecture`, or results.",
    )
