"""The templates that stand for the chips measurements were taken on."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, TypeAdapter

from phaze.hardware.architecture import Architecture, load_architecture
from phaze.yaml_file import parse_yaml


class _Pattern(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    chip: str


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    file = resources.files("phaze.validation").joinpath("chips.yaml")
    content = parse_yaml(file.read_text(encoding="utf-8"), "validation/chips.yaml")
    return tuple((re.compile(p.name), p.chip) for p in TypeAdapter(list[_Pattern]).validate_python(content))


@lru_cache(maxsize=256)
def chip_of(name: str) -> Architecture | None:
    """Template of the chip that a data set calls `name`; None where there is none."""
    plain = re.sub(r"[\s_-]+", " ", name).upper()
    return next((load_architecture(chip) for pattern, chip in _patterns() if pattern.search(plain)), None)
