"""The files behind what was asked, and the folder its answer goes to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from phaze.explore.document import ResultDocument
    from phaze.explore.planning.serving import ServingDocument
    from phaze.hardware.network import Network
    from phaze.hardware.space import DesignSpace
    from phaze.inputs.task import Source

Document = TypeVar("Document", "ResultDocument", "ServingDocument")


def run_folder(out: Path | None, workloads: Sequence[str]) -> Path:
    """The folder asked for, or the default one of this moment."""
    from phaze.runs.directory import default_directory

    return out or default_directory("+".join(Path(name).stem for name in workloads), datetime.now(UTC))


def input_files(
    workloads: Sequence[Source], network: str | Path | Network, space: str | Path | DesignSpace | None = None
) -> dict[str, Path]:
    """The files behind what was asked, built-in ones included; what is no file has none."""
    from phaze.hardware.catalogue import Catalogue, find
    from phaze.workload.load import source_file

    several = len(workloads) > 1
    files = {
        f"workload {Path(name).stem}" if several else "workload": source_file(str(name))
        for name in workloads
        if isinstance(name, str | Path)
    }
    for what, named, catalogue in (
        ("network", network, Catalogue.NETWORK),
        ("space", space, Catalogue.SPACE),
    ):
        if isinstance(named, str | Path):
            files[what] = find(catalogue, named)
    return files


def with_inputs(document: Document, inputs: dict[str, Path], command: Sequence[str]) -> Document:
    """The document with the command line that was typed and the hashes of the files it named."""
    from phaze.runs.manifest import hashes

    typed = {"command": list(command), "inputs_sha256": hashes(inputs)}
    return document.model_copy(update={"manifest": document.manifest.model_copy(update=typed)})
