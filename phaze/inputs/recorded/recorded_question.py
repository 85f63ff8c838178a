"""An answer with the question that it answers: what was asked, and of which files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from phaze.inputs.recorded.input_files import (
    CHIPS,
    architecture,
    catalogued,
    input_files,
    other_models,
    several,
)

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import Manifest
    from phaze.inputs.options.option_model import Options


class Documented(Protocol):
    """Every document that tells how it came about."""

    @property
    def manifest(self) -> Manifest | None:
        """How."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """The same with other values (pydantic)."""


Document = TypeVar("Document", bound=Documented)


def record_question(document: Document, verb: str, options: Options, command: Sequence[str] = ()) -> Document:
    """The document with what was asked in its manifest, and the hashes of the files that were read for it.

    `command`: as typed, empty in Python.
    """
    from phaze.explore.documents.result_manifest import question_sha256
    from phaze.inputs.recorded.recorded_request import recorded_options
    from phaze.runs.atomic_files import file_hashes

    told = {
        "command": list(command),
        "asked": recorded_options(verb, options),
        "inputs_sha256": file_hashes(input_files(options)),
    }
    if (before := document.manifest) is None:
        return document
    manifest = naming_packages(before.model_copy(update=told))
    hashed = manifest.model_copy(update={"question_sha256": question_sha256(manifest)})
    return document.model_copy(update={"manifest": hashed})


def naming_packages(manifest: Manifest) -> Manifest:
    """The manifest with the versions of other packages that bring what its question names."""
    from phaze.hardware.catalogue import Catalogue, registry
    from phaze.workload.workload_loader import source_versions

    asked = manifest.asked.options if manifest.asked else {}
    found = dict(manifest.versions)
    for _, versions in several("workload", asked.get("workload"), source_versions):
        found |= versions
    for _, source in other_models(asked):
        found |= source_versions(source)
    for _, catalogue, path in catalogued(asked):
        found |= registry(catalogue).version(path)
    for _, path in (known for name in CHIPS for known in several(name, asked.get(name), architecture)):
        found |= registry(Catalogue.ARCHITECTURE).version(path)
    if (name := asked.get("strategy")) not in {None, "certified"}:
        from phaze.explore.strategies.strategy_registry import STRATEGIES

        found |= STRATEGIES.version(str(name))
    return manifest.model_copy(update={"versions": found})
