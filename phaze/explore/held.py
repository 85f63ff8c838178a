"""The plans of a task: those of its space that its framework runs, within the choices that are held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError
from phaze.placement.cluster import Recompute
from phaze.placement.strategy.search.space import PlanSpace, plan_space, selective_spares
from phaze.placement.strategy.strategy import Offload
from phaze.workload.degrees import Shardable
from phaze.workload.workload import Mode

if TYPE_CHECKING:
    from phaze.explore.request import Task


def space_of(task: Task) -> PlanSpace:
    """All plans of the task, some choices held. Raises InputError for one that the model does not allow."""
    choices = dict(task.held)
    _check_held(task, choices)
    space = plan_space(task.workload, task.cluster, task.framework, task.plans)
    if task.workload.mode is not Mode.TRAINING:
        _check_forward(space, choices, task.workload.mode)
    held: dict[str, Any] = {"frugal": space.frugal and "recomputes" not in choices, **choices}
    if "whole" in held:
        sorts = frozenset(layer.shardable for layer in task.workload.chain(1, 1).layers if layer.shardable)
        held["whole"] = _among(sorts, held["whole"], task.workload.name)
    away = _offloads(task) if task.workload.mode is Mode.TRAINING else space.offloads
    found = replace(space, **held | {"offloads": away} | _zeros(space, choices))
    if all(found.whole) and (max(found.tensor) == 1 or True not in found.sequence):
        raise InputError("--whole needs sequence parallelism over two or more tensor-parallel devices")
    return found


def _check_held(task: Task, held: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise InputError for what is held and the framework, the space of plans or the model does not have."""
    for what, choices in (("framework", task.framework.plans), ("space of plans", task.plans)):
        if (why := choices.refusal(held)) is not None:
            name = task.framework.name if what == "framework" else task.plans.name
            raise InputError(f"{what} {name} has no {why}")
    selective = Recompute.SELECTIVE in held.get("recomputes", ())
    if (
        selective
        and task.workload.mode is Mode.TRAINING
        and not selective_spares(task.workload, task.framework)
    ):
        raise InputError(
            f"selective recompute spares nothing of {task.workload.name}: flash attention keeps no scores as it is; "
            "give none or full, or --attention unfused"
        )
    workload = task.workload
    widths = "tensor", "tensor-parallel width", workload.tensor_parallel_divisors
    groups = "expert", "expert-parallel degree", workload.expert_parallel_divisors
    for name, word, divisors in (widths, groups):
        admissible = divisors(task.devices)
        for degree in held.get(name, ()):
            if degree not in admissible:
                possible = ", ".join(map(str, admissible))
                raise InputError(f"{word} {degree} is not possible for {workload.name}; possible: {possible}")


def _check_forward(space: PlanSpace, held: Mapping[str, tuple[Any, ...]], mode: Mode) -> None:
    """Raise InputError for choices that inference does not have."""
    names = ["schedules", "chunks", "recomputes", "zeros", "offloads"]
    names += ["sequence", "context", "whole"] if mode is Mode.DECODE else []
    for name in names:
        there = getattr(space, name)
        wrong = [value for value in held.get(name, ()) if value not in there]
        if wrong:
            raise InputError(
                f"{mode} has no plans with {name} {_word(wrong[0])}, but {', '.join(str(_word(v)) for v in there)}"
            )


def _zeros(space: PlanSpace, held: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """What ranks divide beside pipelines of what is held; no pipelines where that is nothing."""
    if space.pipelined_zeros is None or "zeros" not in held:
        return {}
    left = tuple(zero for zero in held["zeros"] if zero in space.pipelined_zeros)
    return {"pipelined_zeros": left} if left else {"pipelined_zeros": None, "pipeline": (1,)}


def _among(
    sorts: Set[Shardable], asked: Sequence[frozenset[Shardable]], name: str
) -> tuple[frozenset[Shardable], ...]:
    """Of sets of layers that stay whole, those of layers that a model has; InputError where that is none."""
    found = tuple(some for some in asked if some <= sorts)
    if not found:
        missing = ", ".join(sorted(frozenset().union(*asked) - sorts))
        there = ", ".join(sorted(sorts)) or "none"
        raise InputError(f"--whole: {name} has no layers of sort {missing} to keep whole; there are: {there}")
    return found


def _offloads(task: Task) -> tuple[frozenset[Offload], ...]:
    """What hosts may keep. Raises InputError for one choice that the framework does not have."""
    asked, framework = task.held.get("offloads", task.plans.offloads), task.framework
    if found := tuple(one for one in asked if framework.can_offload(one)):
        return found
    ways = "; ".join(map(str, map(_word, framework.offloads or ()))) or "nothing"
    raise InputError(
        f"framework {framework.name} does not offload {_word(asked[0])}; it does offload: {ways}"
    )


def told(held: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Choices that are held, as documents spell them."""
    return {name: [_word(value) for value in values] for name, values in held.items()}


def _word(value: object) -> object:
    """A choice as documents spell it."""
    if isinstance(value, frozenset):
        return "+".join(sorted(value)) or "none"
    return getattr(value, "value", value)
