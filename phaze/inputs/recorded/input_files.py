"""The files behind what was asked, the folder of measurements, and the folder an answer goes to."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from phaze.errors import InputError
from phaze.inputs.task_inputs import name_of

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import Manifest
    from phaze.hardware.catalogue import Catalogue
    from phaze.inputs.options.option_model import Options
    from phaze.inputs.task_inputs import Source


class Documented(Protocol):
    """Every document that tells how it came about."""

    @property
    def manifest(self) -> Manifest | None:
        """How."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """The same with other values (pydantic)."""


Document = TypeVar("Document", bound=Documented)
T = TypeVar("T")


def run_folder(out: Path | None, workloads: Sequence[Source], *, each_host: bool = False) -> Path:
    """The folder asked for, or the default one of this moment; `each_host`: and of this process on this host."""
    from phaze.runs.run_directory import default_directory

    name = "+".join(Path(name_of(one)).stem for one in workloads)
    if each_host:
        name += f"-{socket.gethostname()}-{os.getpid()}"
    return out or default_directory(name, datetime.now(UTC))


def input_files(options: Options) -> dict[str, Path]:
    """The files that the options of a verb name, and those that such files build on; built-in ones included.

    By what they are: `workload`, `space`, `arch h100`. What is no file has none. The weights beside an ONNX file are
    not among them: only their shapes count, which stand in the file.
    """
    return {name: path for name, path in _files(options.values) if path.is_file()}


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
    for _, versions in _several("workload", asked.get("workload"), source_versions):
        found |= versions
    for _, catalogue, path in _catalogued(asked):
        found |= registry(catalogue).version(path)
    for _, path in _several("arch", asked.get("arch"), _architecture):
        found |= registry(Catalogue.ARCHITECTURE).version(path)
    if (name := asked.get("strategy")) not in {None, "certified"}:
        from phaze.explore.strategies.strategy_registry import STRATEGIES

        found |= STRATEGIES.version(str(name))
    return manifest.model_copy(update={"versions": found})


def _files(options: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    from phaze.workload.workload_loader import source_file

    yield from _several("workload", options.get("workload"), source_file)
    if fill := options.get("fill"):
        names = fill.split(",") if isinstance(fill, str) else fill
        yield from ((f"fill {Path(name).stem}", source_file(name.strip())) for name in names)
    for what, _, path in _catalogued(options):
        yield what, path
        if what == "space":
            yield from _bases(what, path)
    for what, path in _several("arch", options.get("arch"), _architecture):
        yield what, path
        yield from _bases(what, path)
    if isinstance(fleet := options.get("fleet"), str | Path):
        yield "fleet", Path(fleet)
    if isinstance(trace := options.get("trace"), str | Path):
        yield "trace", Path(trace)
    if isinstance(own := options.get("calibration"), str | Path):
        yield "calibration", Path(own)
    if isinstance(figures := options.get("economics"), str | Path):
        yield "economics", Path(figures)


def _catalogued(options: Mapping[str, Any]) -> Iterator[tuple[str, Catalogue, Path]]:
    """Options that name a file of a catalogue: the option, the catalogue, the file."""
    from phaze.hardware.catalogue import Catalogue, find

    for what, catalogue in (
        ("network", Catalogue.NETWORK),
        ("space", Catalogue.SPACE),
        ("framework", Catalogue.FRAMEWORK),
        ("plans", Catalogue.PLAN_SPACE),
        ("failures", Catalogue.FAILURE),
        ("engine", Catalogue.ENGINE),
    ):
        if isinstance(named := options.get(what), str | Path):
            yield what, catalogue, find(catalogue, named)


def _several(what: str, named: object, find: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """Findings of `find` for one or more of a kind; each by its own name where there are several."""
    names = named if isinstance(named, list | tuple) else [named]
    for name in names:
        if isinstance(name, str | Path):
            yield what if len(names) == 1 else f"{what} {Path(name).stem}", find(str(name))


def _architecture(named: str) -> Path:
    from phaze.inputs.architecture_names import architecture_file

    return architecture_file(named)


def _bases(what: str, path: Path) -> Iterator[tuple[str, Path]]:
    """The architectures that a YAML file of a space or of an architecture builds on, one on the other."""
    from phaze.hardware.architecture import architecture_path
    from phaze.yaml_file import read_yaml

    content = read_yaml(path) if path.is_file() else None
    base = content.get("base") if isinstance(content, dict) else None
    if isinstance(base, str):
        found = architecture_path(base)
        yield f"{what} base {base}", found
        yield from _bases(f"{what} base {base}", found)


DATA = "DSE_DATA"
"""Environment variable that names the folder of measurements, or the folder that holds it."""


def measurements_folder(data: Path | None) -> Path | None:
    """The folder of measurements: the one given or the environment's, whose subfolders `validation*` count, too.

    None where neither is given. Raises InputError where there is no such folder.
    """
    if data is None:
        named = os.environ.get(DATA)
        if not named:
            return None
        data = Path(named)
    if not data.is_dir():
        raise InputError(f"{data}: no such folder")
    return data
