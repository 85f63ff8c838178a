"""Results taken where names and files are: architectures of results, and runs with all that is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.evaluation_verbs import Evaluated
from phaze.api.planning_verbs import Planned, PlannedPools, PlannedServing, Varied
from phaze.api.search_verbs import Explored, ExploredService, Swept
from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.explore.request.explore_request import ExploreRequest
    from phaze.hardware.architecture import Architecture
    from phaze.hardware.cluster_network import Network
    from phaze.runs.document_formats import Answer

Run = (
    Explored
    | ExploredService
    | Evaluated
    | Swept
    | Planned
    | PlannedPools
    | PlannedServing
    | Varied
    | str
    | Path
)
"""A run: its folder, or the result that a function came back with."""


def arguments_at_hand(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a verb as options hold them: results become their architectures, what is varied a text."""
    held = dict(given)
    if "arch" in held:
        arch = held["arch"]
        several = isinstance(arch, Sequence) and not isinstance(arch, str)
        held["arch"] = [architecture_at_hand(one) for one in arch] if several else architecture_at_hand(arch)
    if isinstance(vary := held.get("vary"), Mapping):
        held["vary"] = _varied(vary)
    return held


def _varied(vary: Mapping[str, Any]) -> str:
    """`{"devices": [64, 256]}` as `devices=64,256`. Raises InputError where there is not one name."""
    if len(vary) != 1:
        raise InputError(f"--vary {dict(vary)!r} names {len(vary)} things; it takes one")
    ((name, values),) = vary.items()
    each = values if isinstance(values, Sequence) and not isinstance(values, str) else [values]
    return f"{name}={','.join(map(str, each))}"


def architecture_at_hand(given: object) -> Any:  # noqa: ANN401 - whatever names a chip
    """The architecture of a result; anything else as it is."""
    from phaze.explore.documents.result_document import Design, FrontierPoint, ScorePoint
    from phaze.hardware.architecture import Architecture

    match given:
        case Explored():
            return architecture_at_hand(given.best)
        case ExploredService():
            return Architecture(name=given.chip.id, fields=given.chip.architecture)
        case Evaluated():
            return architecture_at_hand(given.design)
        case Design() | FrontierPoint() | ScorePoint():
            return Architecture(name=given.id, fields=given.architecture)
    return given


@dataclass(frozen=True)
class RunAtHand:
    """One answer: its document, the designs that were evaluated, and the question, which is read when asked for.

    `name`: of the folder, or of the winner where there is none.
    """

    name: str
    document: Answer
    designs: Sequence[Mapping[str, Any]]
    request: Callable[[], ExploreRequest]
    folder: Path | None = None

    @property
    def place(self) -> Path:
        """The folder, or the name as one, for messages."""
        return self.folder or Path(self.name)


def chip_at_hand(given: object) -> Architecture:
    """The architecture that an object is, holds, or names. Raises InputError where there is none."""
    from phaze.inputs.architecture_names import find_architecture

    return find_architecture(architecture_at_hand(given))


def network_at_hand(given: object) -> Network:
    """The network that an object is or names. Raises InputError where there is none."""
    from phaze.hardware.cluster_network import Network, load_network

    return given if isinstance(given, Network) else load_network(str(given))


def run_at_hand(run: Run) -> RunAtHand:
    """The run in a folder (or its file), or of a result. Raises InputError where there is none."""
    match run:
        case str() | Path():
            return _kept(Path(run))
        case Explored():
            name = run.folder.resolve().name if run.folder else run.best.id
            return RunAtHand(name, run.document, run.designs, lambda: run.request, run.folder)
        case Swept():
            name = run.folder.resolve().name if run.folder else "sweep"
            return RunAtHand(name, run.document, run.designs, _without_question(name), run.folder)
        case Evaluated():
            name = run.design.id
            return RunAtHand(name, run.document, (), _without_question(name))
        case Planned() | PlannedPools() | PlannedServing() | Varied() | ExploredService():
            name = f"the result of phaze.{_FUNCTIONS[type(run)]}"
            return RunAtHand(name, run.document, (), _without_question(name))
    kind = type(run).__name__
    raise InputError(
        f"run is of type {kind}; it takes the folder of a run, or a result of phaze.explore and the others"
    )


_FUNCTIONS = {
    Planned: "plan",
    PlannedPools: "plan_pools",
    PlannedServing: "plan_serving",
    Varied: "whatif",
    ExploredService: "explore_service",
}


def _kept(run: Path) -> RunAtHand:
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.documents.sweep_document import SweepDocument
    from phaze.inputs.recorded.recorded_request import request_of
    from phaze.runs.document_formats import load_answer
    from phaze.runs.run_directory import DESIGNS, load_designs

    document = load_answer(run)
    told = isinstance(document, SweepDocument) or (run / DESIGNS).is_file()
    designs = load_designs(run) if told else ()
    name = run.resolve().name if run.is_dir() else run.stem
    if not isinstance(document, ResultDocument):
        return RunAtHand(name, document, designs, _without_question(str(run)), run)
    return RunAtHand(name, document, designs, lambda: request_of(document, run), run)


def _without_question(name: str) -> Callable[[], ExploreRequest]:
    def refuse() -> ExploreRequest:
        raise InputError(f"{name} was not made by dse run, so its question cannot be asked again")

    return refuse
