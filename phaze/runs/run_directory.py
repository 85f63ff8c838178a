"""One folder per run: the answer, every evaluated design, the frontier, and how it came about; those of `dse run`, of
sweeps, and of verbs that take seconds where a folder is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from numpy.typing import NDArray

from phaze.csv_file import columns_to_csv, read_csv, rows_to_csv
from phaze.errors import InputError
from phaze.explore.documents.result_document import (
    Design,
    FrontierPoint,
    Manifest,
    ResultDocument,
    ScorePoint,
)
from phaze.runs.atomic_files import file_name, write_atomically
from phaze.runs.design_table import is_word, known_columns
from phaze.runs.run_lock import LOCK, locked_folder
from phaze.runs.run_log import LOG, is_log
from phaze.runs.store.run_record import RECORD

if TYPE_CHECKING:
    from phaze.explore.documents.serving_document import ServedChip, ServingDocument
    from phaze.explore.documents.sweep_document import SweepDocument
    from phaze.explore.sampling.optuna_sweep import SweepResult
    from phaze.runs.document_formats import Answer


RESULT = "result.json"
DESIGNS = "designs.csv"
MANIFEST = "manifest.json"
_PROBE = ".writable"
Designs = Mapping[str, NDArray[Any]]


def default_directory(name: str, now: datetime) -> Path:
    """`results/NAME-UTCTIME` below the working directory; characters unfit for a file name become `-`.

    Where a run of the same second is there already, `-2`, `-3` and so on behind it.
    """
    first = Path("results") / f"{file_name(name)}-{now:%Y%m%dT%H%M%SZ}"
    later = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(path for path in chain([first], later) if not path.exists())


@contextmanager
def run_directory(path: Path, *, resume: bool = False) -> Iterator[Path]:
    """Create the folder of a run; if the run fails and left nothing in it, remove what was created.

    Raises InputError where it holds something and `resume` was not asked for, or what is not a run of ours, or another
    process is at work there.
    """
    made = _made(path, resume=resume)
    try:
        with locked_folder(path):
            write_atomically(probe := path / _PROBE, "")  # now, not after the work
            probe.unlink(missing_ok=True)  # another host may have been as fast
            yield path
    finally:
        for folder in made:
            if any(folder.iterdir()):
                break
            folder.rmdir()


def _made(path: Path, *, resume: bool) -> list[Path]:
    """Make a folder, which a run may use; the folders that were not there before, the innermost first."""
    try:
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file; --out needs a folder")
        inside = [item.name for item in path.iterdir()] if path.is_dir() else []
        _check_free(path, {name for name in inside if not name.startswith((LOCK, _PROBE))}, resume=resume)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create {path}: {error.strerror}") from error
    return made


def _check_free(path: Path, inside: set[str], *, resume: bool) -> None:
    """Raises InputError where a folder holds what a run would mix with or write over."""
    if inside and not resume:
        raise InputError(f"{path} is not empty; choose another --out, or add --resume to continue there")
    if inside and RECORD not in inside and not is_log(path / LOG):
        raise InputError(f"{path} holds other files than those of a run; choose another --out")


def write_run(path: Path, document: ResultDocument, designs: Designs) -> None:
    """Write all files of a run; `result.json` comes last, so that where it exists the run is complete.

    `designs`: one equally long array per column, `id` among them, units in the column names.
    """
    steps = document.portfolio.frontier if document.portfolio else document.frontier
    write_tables(path, designs, [flat_row(point) for point in steps])
    write_manifest(path, document.manifest)
    write_architecture(path, document.best)
    write_atomically(path / RESULT, document.model_dump_json(by_alias=True, indent=2) + "\n")


def write_tables(path: Path, designs: Designs, frontier: list[dict[str, Any]]) -> None:
    """`designs.csv` and `frontier.csv`."""
    write_atomically(
        path / DESIGNS,
        columns_to_csv({name: np.asarray(column).tolist() for name, column in designs.items()}),
    )
    write_atomically(path / "frontier.csv", rows_to_csv(frontier))


def table_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Rows as one array per column, in the order of the table's description, whatever theirs is."""
    known = list(known_columns())
    before = known.index("throughput_samples_per_s")  # of one workload; those of several stand there
    order = {name: place for place, name in enumerate(known)}
    names = sorted({name for row in rows for name in row}, key=lambda name: (order.get(name, before), name))
    return {name: np.asarray([row.get(name) for row in rows]) for name in names}


def write_manifest(path: Path, manifest: Manifest) -> None:
    """`manifest.json`: versions, command, seed, hashes of the inputs."""
    write_atomically(path / MANIFEST, manifest.model_dump_json(indent=2) + "\n")


def write_architecture(path: Path, design: Design | ServedChip) -> None:
    """`architecture.yaml`: the winner, usable as `--arch`."""
    content = {
        "schema_version": 1,
        "name": design.id,
        "description": f"found by dse: {design.area_mm2:.4g} mm2, {design.tdp_w:.4g} W",
        "fields": design.architecture,
    }
    write_atomically(path / "architecture.yaml", yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def load_run(path: Path) -> ResultDocument:
    """The result document of a run directory of `dse run` or `dse evaluate` (or of its `result.json`).

    Raises InputError where there is none, it is not JSON, of another schema, or not valid.
    """
    from phaze.runs.document_formats import RESULT as RESULT_FORMAT  # heavy: formats of all verbs
    from phaze.runs.document_formats import load_document

    return load_document(RESULT_FORMAT, path)


def load_searched(path: Path) -> ResultDocument | ServingDocument:
    """The document of a run of `dse run`, with --serve or without. Raises InputError as `load_run` does."""
    from phaze.runs.atomic_files import read_json
    from phaze.runs.document_formats import SERVING, answer_file, load_document
    from phaze.runs.document_migration import version_of

    content = read_json(answer_file(path))
    if isinstance(content, dict) and version_of(content, SERVING.name) is not None:
        return load_document(SERVING, path)
    return load_run(path)


def load_designs(path: Path) -> list[dict[str, Any]]:
    """Every evaluated design of a run directory, one mapping of columns each."""
    file = path / DESIGNS
    if not file.is_file():
        why = f"{DESIGNS} is missing" if path.exists() else "nothing is there; dse runs lists what there is"
        raise InputError(f"no run at {path}: {why}")
    rows = read_csv(file, is_word)
    if rows and "id" not in rows[0]:
        raise InputError(f"{file} cannot be read: it has no column id")
    return rows


def flat_row(point: FrontierPoint | ScorePoint) -> dict[str, Any]:
    """One row: the figures, then the hardware fields; throughput per workload in columns of its own."""
    row = point.model_dump()
    each: dict[str, float] = row.pop("throughputs_samples_per_s", {})
    row |= {f"throughput_samples_per_s[{name}]": value for name, value in each.items()}
    architecture: dict[str, Any] = row.pop("architecture")
    return {**row, **{name: value for name, value in architecture.items() if name not in row}}


@contextmanager
def kept_answer(out: Path | None) -> Iterator[Callable[[Answer], None]]:
    """A function that keeps an answer in the folder, if one is named; that it can be written is known before.

    Raises InputError where the folder holds something, or cannot be written.
    """
    if out is None:
        yield lambda _: None
        return
    with run_directory(out) as folder:
        yield lambda document: write_answer(folder, document)


def write_answer(path: Path, document: Answer) -> None:
    """`manifest.json`, the winner where there is one, and last `result.json`: what `--json` prints."""
    if document.manifest is not None:
        write_manifest(path, document.manifest)
    if isinstance(document, ResultDocument):
        write_architecture(path, document.best)
    elif (chip := getattr(document, "chip", None)) is not None:  # of a service; its document is heavy to load
        write_architecture(path, chip)
    write_atomically(path / RESULT, document.model_dump_json(by_alias=True, indent=2) + "\n")


def write_sweep(path: Path, document: SweepDocument, result: SweepResult) -> None:
    """Write the designs, the frontier, the manifest, and last the document: where it exists, the sweep is complete."""
    if result.designs:
        # A storage gives back what a trial told in another order than it was told in.
        names = list(table_columns(result.frontier))
        frontier = [{name: row[name] for name in names if name in row} for row in result.frontier]
        write_tables(path, table_columns(result.designs), frontier)
    write_answer(path, document)
