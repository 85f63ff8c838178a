"""Programs saved by `torch.export.save`: the archive's JSON is read, neither torch nor the weights are.

The format is PyTorch's own serialisation (torch/_export/serde/schema.py, schema version 8).
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phaze.errors import MALFORMED, InputError
from phaze.workload.exported.model import ExportedModel, join_recordings
from phaze.workload.exported.saved_graph import SavedGraph
from phaze.workload.exported.sizes import symbols

SCHEMA_VERSION = 8
LARGEST = 2**26
"""Bytes of JSON; a program of 30 000 nodes has that many."""

MOST_VALUES = 2**22
"""Values in that JSON: of brackets alone it would become a hundred times as large in memory."""

_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 1  # flag of a file in an archive
BATCHES = (2, 14)  # a factor of 7 between them, a prime that is rare as a dimension


def load_pt2(path: str | Path, bind: Mapping[str, int] | None = None) -> ExportedModel:
    """Read a saved program without its weights.

    The first dimension of the inputs is the batch and must have been exported as dynamic; `bind` gives sizes
    to other dynamic dimensions, by symbol (`s33`) or place (`tokens[1]`). Raises InputError (one sentence,
    naming the file) for a file that is missing or damaged, a fixed batch, dimensions without a size,
    operators that are not supported, and programs that mix samples.
    """
    path = Path(path)
    document = _document(path)
    try:
        graph = document["graph_module"]["graph"]
        signature = document["graph_module"]["signature"]
        batch, values = _symbols(path, graph, signature, bind or {})
        first, second = (
            SavedGraph(str(path), signature, {**values, batch: size}).program(graph, size) for size in BATCHES
        )
        return join_recordings(path.stem, first, second)
    except MALFORMED as error:
        raise InputError(f"{path}: not a readable saved program ({error})") from error


def _document(path: Path) -> dict[str, Any]:
    """The program's JSON in the archive."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path}: not a file"
        )  # an archive is read from its end, which a device may not have
    try:
        with zipfile.ZipFile(path) as archive:
            document: dict[str, Any] = json.loads(_content(path, archive))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, *MALFORMED) as error:
        raise InputError(f"{path}: not a readable saved program (damaged or another format)") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, dict) or version.get("major") != SCHEMA_VERSION:
        raise InputError(f"{path}: schema version {version}; this reads major version {SCHEMA_VERSION}")
    return document


def _content(path: Path, archive: zipfile.ZipFile) -> bytes:
    """The JSON in the archive, as far as it can be read within bounds."""
    names = [n for n in archive.namelist() if n.endswith("models/model.json")]
    names = names or [n for n in archive.namelist() if n.endswith("serialized_exported_program.json")]
    if not names:
        raise InputError(f"{path}: not a program saved by torch.export.save (it holds no graph)")
    entry = archive.getinfo(names[0])
    if entry.flag_bits & _ENCRYPTED:
        raise InputError(f"{path}: {entry.filename} is encrypted; save the program without a password")
    if entry.compress_type not in _METHODS:
        raise InputError(f"{path}: {entry.filename} is compressed in a way that torch.export.save never uses")
    if entry.file_size > LARGEST:
        raise InputError(f"{path}: its graph has {entry.file_size} bytes; at most {LARGEST} are read")
    content = archive.read(entry)
    if (values := sum(map(content.count, (b",", b"[", b"{")))) > MOST_VALUES:
        raise InputError(f"{path}: its graph has about {values} values; at most {MOST_VALUES} are read")
    return content


def _symbols(
    path: Path, graph: Mapping[str, Any], signature: Mapping[str, Any], bind: Mapping[str, int]
) -> tuple[str, dict[str, int]]:
    """The symbol of the batch, and the sizes of all others."""
    places = _places(graph, signature)
    firsts = {symbol for symbol, names in places.items() if any(name.endswith("[0]") for name in names)}
    if len(firsts) != 1:
        what = f"has {len(firsts)} independent sizes" if firsts else "is fixed"
        raise InputError(
            f"{path}: the first dimension of the inputs {what}; export it as one dynamic batch, for instance "
            "torch.export.export(model, inputs, dynamic_shapes=({0: torch.export.Dim('batch')},))"
        )
    batch = firsts.pop()
    values = {}
    for symbol, names in places.items():
        given = [bind[name] for name in (symbol, *names) if name in bind]
        if symbol != batch and not given:
            raise InputError(f"{path}: dynamic dimension {names[0]} needs a size: give --bind {names[0]}=...")
        values[symbol] = given[0] if given else 0
    known = {name for symbol, names in places.items() if symbol != batch for name in (symbol, *names)}
    for name, size in sorted(bind.items()):
        if name not in known or size < 1:
            what = (
                f"cannot be {size}"
                if name in known
                else f"is not one of {', '.join(sorted(known)) or 'none'}"
            )
            raise InputError(f"{path}: dynamic dimension {name!r} {what}")
    return batch, values


def _places(graph: Mapping[str, Any], signature: Mapping[str, Any]) -> dict[str, list[str]]:
    """Where in the inputs each symbol is a dimension: `tokens[1]`."""
    found: dict[str, list[str]] = {}
    for spec in signature["input_specs"]:
        argument = spec.get("user_input", {}).get("arg", {})
        name = argument.get("as_tensor", {}).get("name")
        for axis, size in enumerate(graph["tensor_values"][name]["sizes"] if name else ()):
            if "as_expr" in size:
                for symbol in symbols(size["as_expr"]["expr_str"]):
                    found.setdefault(symbol, []).append(f"{name}[{axis}]")
    return found
