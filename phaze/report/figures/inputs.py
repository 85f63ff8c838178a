"""What was asked, on which assumptions, and what is needed to repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping

from phaze.explore.documents.result_document import Manifest
from phaze.report import format as fmt
from phaze.report.figures.contents import Contents
from phaze.report.page.markup import Html, Section, join, paragraph, table, tag

_ASSUMPTIONS = (
    "Tensor cores are systolic arrays; an operator takes the largest of compute, on-chip traffic and HBM traffic, plus "
    "the fill of the arrays.",
    "Operators of a layer may run side by side; a layer is never faster than its bytes through HBM and global buffer.",
    "Stages are contiguous runs of layers, and a device works on one layer at a time.",
    "Collectives are rings on a network of two tiers. Gradient reduction and stage transfers are not hidden behind "
    "compute; transfers count at both ends.",
    "Kernel launches, compiler quality, cache misses, congestion and failures are not in the model.",
)


def inputs(contents: Contents) -> Iterator[Section]:
    """The request, the assumptions, and the manifest."""
    yield Section("assumptions", "Inputs and assumptions", join(_asked(contents)))
    yield repeat(contents.document.manifest)


def repeat(manifest: Manifest) -> Section:
    """What is needed to make it again."""
    return Section("repeat", "Versions", join(_manifest(manifest)))


def request_table(request: Mapping[str, object]) -> Html:
    """What was asked, without what was not."""
    rows = [
        (fmt.label(name), _value(name, value))
        for name, value in request.items()
        if value not in (None, {}, [], False)
    ]
    return table(("", ""), rows, look="facts")


def _asked(contents: Contents) -> Iterator[Html]:
    yield request_table(contents.document.request)
    yield tag("h3", "What the model assumes")
    yield tag("ul", *(tag("li", line) for line in _ASSUMPTIONS))
    yield paragraph(
        "So compare architectures and placements with these figures; the times of a real system are others. How far "
        "off they are against measurements is told by dse validate."
    )
    if contents.left_out:
        yield paragraph(
            "Sections on the iteration, operators, memory and sensitivity are left out: ", contents.left_out
        )


def _value(name: str, value: object) -> object:
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return tag("code", json.dumps(value, ensure_ascii=False))
    return fmt.field(name, value)


def _manifest(manifest: Manifest) -> Iterator[Html]:
    if manifest.command:
        yield paragraph(tag("code", shlex.join(manifest.command)))
    rows = [
        ("started", manifest.started_utc),
        ("took", f"{fmt.duration(manifest.wall_time_s)}"),
        ("seed", f"{manifest.seed}"),
        *((name, version) for name, version in manifest.versions.items()),
        *((f"SHA-256 of {name}", tag("code", sha)) for name, sha in manifest.inputs_sha256.items()),
    ]
    yield table(("", ""), rows, look="facts")
