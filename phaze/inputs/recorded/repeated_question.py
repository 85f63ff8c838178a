"""Question of a run directory, asked again: one way for every verb that keeps an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError
from phaze.explore.documents.result_document import ResultDocument
from phaze.inputs.evaluate_inputs import compare_given, evaluate_given
from phaze.inputs.fleet_inputs import fleet_answer
from phaze.inputs.options.options_by_verb import MODELS
from phaze.inputs.options.search_options import RunOptions, SweepOptions
from phaze.inputs.plan_inputs import (
    bubbles_answer,
    colocate_answer,
    failures_answer,
    plan_answer,
    whatif_answer,
)
from phaze.inputs.recorded.recorded_request import asked_before, asked_of_run, check_inputs
from phaze.inputs.serving_inputs import serving_answer
from phaze.runs.run_directory import write_answer

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import Manifest
    from phaze.explore.request.search_progress import Progress
    from phaze.runs.document_formats import Answer


@dataclass(frozen=True)
class RepeatedAnswer:
    """The new answer, and how it is written to a folder."""

    document: Answer
    write: Callable[[Path, Answer], None] = write_answer

    def signed_as(self, before: Manifest) -> RepeatedAnswer:
        """The same with the question of another manifest: it is that one's."""
        from phaze.inputs.recorded.recorded_question import naming_packages

        manifest = self.document.manifest
        told = {name: getattr(before, name) for name in ("command", "asked", "inputs_sha256")}
        signed = manifest and naming_packages(manifest.model_copy(update=told))
        return RepeatedAnswer(self.document.model_copy(update={"manifest": signed}), self.write)


_ANSWERS: Mapping[str, Callable[[Any], Answer]] = {
    "evaluate": evaluate_given,
    "compare": lambda options: compare_given(options).document,
    "plan": plan_answer,
    "plan pools": fleet_answer,
    "plan serving": lambda options: serving_answer(options)[1][2],
    "whatif": whatif_answer,
    "whatif bubbles": bubbles_answer,
    "whatif colocate": colocate_answer,
    "whatif failures": failures_answer,
}


def repeat_question(document: Answer, run: Path, report: Progress) -> RepeatedAnswer:
    """Ask once more what an answer was asked, of the same files.

    Raises InputError where that is not known, an input has changed since, or was a Python object.
    """
    from phaze.explore.documents.serving_document import ServingDocument

    manifest = document.manifest
    if manifest is None:
        raise InputError(f"{run} does not say what was asked")
    verb = manifest.asked.verb if manifest.asked else "run"
    if verb == "run" and isinstance(document, ServingDocument):
        return RepeatedAnswer(_repeat_service(asked_of_run(manifest, run), report)).signed_as(manifest)
    if verb == "run":
        return _repeat_run(asked_of_run(manifest, run), report, _patience_s(document)).signed_as(manifest)
    if verb not in MODELS:
        raise InputError(f"{run} was made by dse {verb}, which this version cannot repeat")
    options = asked_before(manifest, run, MODELS[verb])
    check_inputs(manifest, options)
    if isinstance(options, SweepOptions):
        return _repeat_sweep(options, report).signed_as(manifest)
    return RepeatedAnswer(_ANSWERS[verb](options)).signed_as(manifest)


def _repeat_service(options: RunOptions, report: Progress) -> Answer:
    from phaze.explore.request.search_progress import Clock
    from phaze.explore.services.service_answer import find_service
    from phaze.inputs.run_inputs import make_service

    request = make_service(options)
    return find_service(request, report, Clock(request.time_limit_s), options.seed).document


def _patience_s(document: Answer) -> float | None:
    """Seconds to find an answer again that no time limit has cut short: no limit cuts it short this time either.

    None: those that were asked for.
    """
    whole = isinstance(document, ResultDocument) and document.certificate.frontier_complete
    return inf if whole else None


def _repeat_run(options: RunOptions, report: Progress, patience_s: float | None) -> RepeatedAnswer:
    from phaze.explore.answers.main_job import explore
    from phaze.explore.request.search_progress import Clock
    from phaze.inputs.run_inputs import make_request
    from phaze.runs.run_directory import write_run

    request = make_request(options)
    found = explore(request, report, Clock(request.time_limit_s if patience_s is None else patience_s))

    def write(folder: Path, document: Answer) -> None:
        if isinstance(document, ResultDocument):
            write_run(folder, document, found.designs)

    return RepeatedAnswer(found.document, write)


def _repeat_sweep(options: SweepOptions, report: Progress) -> RepeatedAnswer:
    """A sweep from its start, in a study that does not last."""
    from phaze.explore.documents.sweep_document import SweepDocument, sweep_document
    from phaze.explore.sampling.optuna_sweep import Sweep
    from phaze.inputs.sweep_inputs import make_plan
    from phaze.runs.run_directory import write_sweep

    started = datetime.now(UTC)
    sampling = Sweep(make_plan(options, None), report)
    found = sampling.run()

    def write(folder: Path, document: Answer) -> None:
        if isinstance(document, SweepDocument):
            write_sweep(folder, document, found)

    return RepeatedAnswer(sweep_document(sampling, found, started), write)
