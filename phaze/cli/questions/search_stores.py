"""Stores of a run: its own record, and the cache that all runs share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.inputs.options.search_options import RunOptions

if TYPE_CHECKING:
    from phaze.explore.request.search_resources import Store
    from phaze.runs.store.run_record import Question, RunRecord


@dataclass(frozen=True)
class RunStores:
    """The store that a search is given, and the run's own record in it."""

    store: Store
    record: RunRecord

    def complete(self) -> None:
        """There is nothing left to continue."""
        self.record.remove()


@contextmanager
def open_run_stores(folder: Path, options: RunOptions, files: Mapping[str, Path]) -> Iterator[RunStores]:
    """Open both for a run with these options that reads these files.

    Raises InputError where the run to be continued in that folder was asked something else.
    """
    from phaze.runs.atomic_files import file_hashes
    from phaze.runs.store.run_record import Question, run_record

    question = Question.of(options.answering, file_hashes(files))
    _check_complete(folder, question)
    with run_record(folder, question, _tell) as record:
        yield RunStores(_layered(record.store, cached=not options.no_cache), record)


def _check_complete(folder: Path, question: Question) -> None:
    """Raises InputError where a complete run in that folder was asked something else."""
    from phaze.inputs.recorded.recorded_request import asked_before
    from phaze.runs.run_directory import RESULT, load_run
    from phaze.runs.store.run_record import Question

    if (folder / RESULT).is_file():
        manifest = load_run(folder).manifest
        before = asked_before(manifest, folder, RunOptions)
        question.check(Question.of(before.answering, manifest.inputs_sha256), folder)


def shared_store(*, cached: bool) -> Store:
    """The cache that all runs share, or a store that remembers nothing."""
    if not cached:
        from phaze.explore.request.search_resources import NoStore

        return NoStore()
    from phaze.runs.store.evaluation_cache import open_cache

    return open_cache(_tell)


def _layered(record: Store, *, cached: bool) -> Store:
    from phaze.runs.store.evaluation_database import LayeredStores

    return LayeredStores(record, shared_store(cached=True)) if cached else record


def _tell(sentence: str) -> None:
    from phaze.cli.console_output import print_error

    print_error(sentence)
