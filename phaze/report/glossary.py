"""Meanings of names: hardware fields, result fields, words, values that options offer, names of designs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from phaze.explore.documents.result_document import ResultDocument
from phaze.hardware.architecture_naming import in_words
from phaze.hardware.economics.economic_figures import figures
from phaze.hardware.hardware_fields import field_table
from phaze.report.number_format import field as readable
from phaze.report.number_format import label, unit_of
from phaze.yaml_file import parse_yaml

MOST = 3
"""Places of a result field that are named; more are counted."""


@dataclass(frozen=True)
class Entry:
    """One meaning of a name; empty strings where there is nothing to say."""

    name: str
    kind: str
    text: str
    unit: str = ""
    default: str = ""
    source: str = ""


def entries() -> tuple[Entry, ...]:
    """Every name that can be explained: words, values, hardware fields, figures of money and carbon, result fields."""
    words = (*_words("glossary.yaml"), *_words("choices.yaml"))
    return (*words, *_hardware_fields(), *_economic_figures(), *_result_fields())


def explain(name: str, more: Iterable[Entry] = ()) -> tuple[Entry, ...]:
    """All meanings of a name; `-`, blanks, case, a plural and a unit suffix do not matter. Empty if unknown.

    Of a design's name or a part of it: what it has. Of a phrase that is no name as a whole: the longest words of ours
    in it. `more`: entries beside ours.
    """
    if (design := in_words(name.strip())) is not None:
        return (Entry(name.strip(), "name of a design", f"{design[0].upper()}{design[1:]}."),)
    key = _key(name)
    known, wanted = (*entries(), *more), {key, _stem(key), key.removesuffix("s")}
    found = tuple(entry for entry in known if wanted & {_key(entry.name), _stem(entry.name)})
    return found or _inside(key, known)


def _inside(phrase: str, known: Sequence[Entry]) -> tuple[Entry, ...]:
    """Words that stand in a phrase of several, the longest."""
    parts = f"_{'_'.join(re.findall('[a-z0-9/]+', phrase))}_"
    told = [entry for entry in known if entry.kind == "word" and f"_{_key(entry.name)}_" in parts]
    longest = max((len(entry.name) for entry in told), default=0)
    return tuple(entry for entry in told if len(entry.name) == longest) if parts.count("_") > 2 else ()


def _words(file: str) -> Iterator[Entry]:
    text = files("phaze.report").joinpath(file).read_text(encoding="utf-8")
    words: Any = parse_yaml(text, file)
    for name, meaning in words.items():
        yield Entry(name, "word", meaning)


def _hardware_fields() -> Iterator[Entry]:
    for field in field_table().values():
        unit = "" if field.unit == "1" else field.unit
        default = "" if field.default is None else readable(field.name, field.default)
        yield Entry(field.name, "hardware field", field.description, unit, default, field.source)


def _economic_figures() -> Iterator[Entry]:
    """Figures behind money and carbon, which a file given with --economics overrules."""
    for figure in figures():
        text = f"{figure.about[0].upper()}{figure.about[1:]}."
        yield Entry(figure.name, "figure of --economics", text, figure.unit, figure.value, figure.source)


def _result_fields() -> Iterator[Entry]:
    """Fields of the result document that carry a description, with their places in it; equal ones once."""
    definitions: dict[str, Any] = ResultDocument.model_json_schema(by_alias=True)["$defs"]
    places: dict[tuple[str, str], list[str]] = {}
    for model, schema in definitions.items():
        for name, value in schema.get("properties", {}).items():  # an enumeration has none
            if "description" in value:
                places.setdefault((name, value["description"]), []).append(model)
    for (name, text), models in places.items():
        more = f" and {len(models) - MOST} more" if len(models) > MOST else ""
        yield Entry(name, f"result field of {', '.join(models[:MOST])}{more}", text, unit_of(name))


def _key(name: str) -> str:
    return re.sub(r"[\s-]", "_", name.strip().lower().replace("'", "")).removeprefix("__")


def _stem(name: str) -> str:
    """A field name without its unit: `tdp_w` is found as `tdp`."""
    return label(name).replace(" ", "_")
