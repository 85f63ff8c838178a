"""The files behind what was asked, the folder of measurements, and the folder an answer goes to."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from phaze.errors import InputError
from phaze.inputs.options.offered_values import NGRAM
from phaze.inputs.workload_sources import name_of

if TYPE_CHECKING:
    from phaze.hardware.catalogue import Catalogue
    from phaze.inputs.options.option_model import Options
    from phaze.inputs.workload_sources import Source


T = TypeVar("T")


def run_folder(out: Path | None, workloads: Sequence[Source], *, each_host: bool = False) -> Path:
    """The folder asked for, or the default one of this moment; `each_host`: and of this process on this host."""
    from phaze.runs.run_directory import default_directory

    name = "+".join(Path(name_of(one)).stem for one in workloads)
    if each_host:
        name += f"-{socket.gethostname()}-{os.getpid()}"
    return out or default_directory(name, datetime.now(UTC))


CHIPS = ("arch", "decode_arch")
"""Options that name architectures."""


def input_files(options: Options) -> dict[str, Path]:
    """The files that the options of a verb name, and those that such files build on; built-in ones included.

    By what they are: `workload`, `space`, `arch h100`. What is no file has none. The weights beside an ONNX file are
    not among them: only their shapes count, which stand in the file.
    """
    return {name: path for name, path in _files(options.values) if path.is_file()}


def _files(options: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    from phaze.workload.workload_loader import source_file

    yield from several("workload", options.get("workload"), source_file)
    for what, name in other_models(options):
        yield f"{what} {Path(name).stem}", source_file(name)
    for what, _, path in catalogued(options):
        yield what, path
        if what == "space":
            yield from _bases(what, path)
    for name in CHIPS:
        for what, path in several(name, options.get(name), architecture):
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


def other_models(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options that name models besides `workload`: the option, and each source."""
    for what in ("fill", "beside", "draft"):
        named = options.get(what) or ()
        for name in named.split(",") if isinstance(named, str) else named:
            if name.strip() != NGRAM:
                yield what, name.strip()


def catalogued(options: Mapping[str, Any]) -> Iterator[tuple[str, Catalogue, Path]]:
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


def several(what: str, named: object, find: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """Findings of `find` for one or more of a kind; each by its own name where there are several."""
    names = named if isinstance(named, list | tuple) else [named]
    for name in names:
        if isinstance(name, str | Path):
            yield what if len(names) == 1 else f"{what} {Path(name).stem}", find(str(name))


def architecture(named: str) -> Path:
    """The file of an architecture, by its name."""
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
