"""Published JSON Schemas change with their version only, and every column of a design table is described."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from phaze.document_names import DocumentName
from phaze.hardware.hardware_fields import field_table
from phaze.runs.design_table import column, known_columns, reference_page
from phaze.runs.document_schemas import Kind, schema

ROOT = Path(__file__).parents[2]
DIGESTS = ROOT / "tests" / "data" / "schemas.json"
PROSE = ("title", "description")


def shape(value):
    """A schema without its prose; `title` and `description` stay where they are names of properties."""
    if isinstance(value, list):
        return [shape(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: {key: shape(one) for key, one in inner.items()}
        if name in ("properties", "$defs")
        else shape(inner)
        for name, inner in value.items()
        if name not in PROSE
    }


def digest(kind):
    text = json.dumps(shape(schema(kind)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("kind", Kind)
def test_a_schema_changes_with_its_version_only(kind):
    name, now = schema(kind)["$id"], digest(kind)
    known = json.loads(DIGESTS.read_text(encoding="utf-8"))
    assert known.get(name) == now, (
        f"The JSON Schema of {kind.value} is not the one that {name} stands for. If {name} was never released, put its "
        f"new digest {now} into {DIGESTS.relative_to(ROOT)}. Otherwise raise its version where {name!r} is written, "
        "add the step from the old version to phaze/runs/document_migration.py and to its Format in "
        "phaze/runs/document_formats.py, keep an old document in tests/data/documents, and add the digest under the "
        "new name; digests of old versions stay."
    )


@pytest.mark.parametrize("kind", Kind)
def test_a_document_has_a_name_of_ours_and_says_it(kind):
    told = schema(kind)
    assert told["$id"].partition("/")[0] in set(DocumentName)
    own = told["properties"].get("schema", {"default": told["$id"]})
    assert own["default"] == told["$id"]


def test_prose_is_no_change_but_a_property_called_title_is():
    one = {"title": "A", "properties": {"title": {"type": "string", "description": "x"}}}
    assert shape(one) == {"properties": {"title": {"type": "string"}}}


def test_the_page_of_columns_is_current():
    page = ROOT / "docs" / "reference" / "design-table.md"
    assert page.read_text(encoding="utf-8") == reference_page(), "write reference_page() to the file again"


def test_columns_are_known_by_name():
    assert column("tdp_w").unit == "W"
    assert column("hbm_generation").unit == ""
    assert column("throughput_samples_per_s[gpt3]").unit == "1/s"
    assert column("nonsense") is None
    assert set(field_table()) < set(known_columns())
