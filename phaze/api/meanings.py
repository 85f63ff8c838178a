"""Meanings of all words that a user meets: those of the glossary, options of verbs, and what is packaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from phaze.errors import InputError
from phaze.hardware.catalogue import Catalogue, registry
from phaze.inputs.named_choices import nearest
from phaze.inputs.options.options_by_verb import MODELS
from phaze.inputs.options.plan_options import NOT_ASKED
from phaze.plugins import name_key
from phaze.report.glossary import MOST, Entry, entries, explain
from phaze.workload.workload_library import WORKLOADS
from phaze.yaml_file import parse_yaml

_KINDS = {
    Catalogue.ARCHITECTURE: "chip",
    Catalogue.SPACE: "design space",
    Catalogue.NETWORK: "network",
    Catalogue.FRAMEWORK: "training software",
    Catalogue.PLAN_SPACE: "plan space",
    Catalogue.FAILURE: "record of failures",
    Catalogue.ENGINE: "inference engine",
}


def meanings(name: str) -> tuple[Entry, ...]:
    """All meanings of a name, as `dse explain NAME` tells them.

    Raises InputError with near names where there is none.
    """
    found = _found(name)
    if not found:
        known = {entry.name for entry in (*entries(), *_options())} | {n for _, n, _ in _files()}
        raise InputError(
            f"nothing is called {name!r}{nearest(name.lower().replace('-', '_'), sorted(known))}"
        )
    return found


def is_known(name: str) -> bool:
    """Whether a name means anything."""
    return bool(_found(name))


def _found(name: str) -> tuple[Entry, ...]:
    return explain(name, (*_options(), *_packaged(name)))


def _options() -> Iterator[Entry]:
    """Options of the verbs that answer questions, each with the verbs that have it; what they say alike once."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for verb, model in MODELS.items():
        for name, (field, option) in model.described().items():
            default = field.default if isinstance(field.default, str | int | float) else None
            shown = "" if default is None or isinstance(default, bool) else str(default)
            verbs.setdefault((name, option.help, shown), []).append(verb)
    for (name, text, default), those in verbs.items():
        if text not in NOT_ASKED:
            more = f" and {len(those) - MOST} more" if len(those) > MOST else ""
            yield Entry(name, f"option of dse {', '.join(those[:MOST])}{more}", text, default=default)


def _packaged(name: str) -> Iterator[Entry]:
    """Files of that name: a chip, a workload, a space."""
    for kind, called, path in _files():
        if name_key(called) == name_key(name):
            yield Entry(called, kind, _about(path))


def _files() -> Iterator[tuple[str, str, Path]]:
    for catalogue, kind in _KINDS.items():
        yield from ((kind, name, path) for name, path in registry(catalogue).all().items())
    yield from (("workload", name, path) for name, path in WORKLOADS.all().items())


def _about(path: Path) -> str:
    """What a file says of itself: its description, its source, its tiers, or the comment that it begins with."""
    text = path.read_text(encoding="utf-8")
    content = parse_yaml(text, path.name)
    if isinstance(content, dict):
        for key in ("description", "source"):
            if isinstance(told := content.get(key), str):
                return " ".join(told.split())
        if tiers := content.get("tiers") or [
            {"topology": kind.replace("_", "-"), **content[kind]}
            for kind in ("scale_up", "scale_out")
            if kind in content
        ]:
            return f"{'; '.join(map(_tier, tiers))}."
    lines = text.splitlines()
    comment = [
        line[1:].strip() for line in lines[: next((i for i, s in enumerate(lines) if s[:1] != "#"), 0)]
    ]
    return " ".join(comment)


def _tier(tier: Mapping[str, Any]) -> str:
    size = f" of {tier['devices']} devices" if tier.get("devices") else ""
    return f"{tier['topology']}{size} at {tier.get('bandwidth') or 'the bandwidth of links'}"
