"""Base of every part of a result document."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, cast

from pydantic import BaseModel, ConfigDict

from phaze.yaml_file import parse_yaml


@cache
def meanings() -> Mapping[str, str]:
    """Meanings of fields where their record does not say more, by the name they have in a document."""
    text = files("phaze.explore.documents").joinpath("meanings.yaml").read_text(encoding="utf-8")
    return cast("Mapping[str, str]", parse_yaml(text, "meanings.yaml"))


def _explain(schema: dict[str, Any]) -> None:
    """Give the fields of a published schema that say nothing of themselves the meaning of their name."""
    for name, field in schema.get("properties", {}).items():
        if "description" not in field and name in meanings():
            field["description"] = meanings()[name]


class Record(BaseModel):
    """Frozen, closed: an unknown key is an error, not a silent loss."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, populate_by_name=True, json_schema_extra=_explain
    )
