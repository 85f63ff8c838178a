"""The best training plan, or one that is fixed, from what was asked."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phaze.explore.documents.plan_document import PlanDocument
    from phaze.inputs.option_models import PlanChoices, PlanOptions
    from phaze.parallel.parallel_plan import Offload
    from phaze.workload.parallel_degrees import Shardable


def held_choices(given: PlanChoices) -> dict[str, tuple[Any, ...]]:
    """The choices of a plan space that options fix. Raises InputError for words that are not known."""
    from phaze.inputs.named_choices import choose
    from phaze.parallel.cluster import Recompute
    from phaze.parallel.parallel_plan import RankOrder, Zero
    from phaze.parallel.pipelines.pipeline_schedule import Schedule

    stage = _count("--zero", given.zero, 0, max(Zero))
    found = {
        "data": _count("--data-parallel", given.data_parallel),
        "tensor": _count("--tensor-parallel", given.tensor_parallel),
        "pipeline": _count("--pipeline-parallel", given.pipeline_parallel),
        "context": _count("--context-parallel", given.context_parallel),
        "expert": _count("--expert-parallel", given.expert_parallel),
        "sequence": given.sequence_parallel,
        "microbatches": _count("--microbatch", given.microbatch),
        "schedules": choose(Schedule, given.schedule, "--schedule") if given.schedule else None,
        "chunks": _count("--chunks", given.chunks),
        "recomputes": choose(Recompute, given.recompute, "--recompute") if given.recompute else None,
        "zeros": None if stage is None else Zero(stage),
        "orders": choose(RankOrder, given.order, "--order") if given.order else None,
    }
    fixed: dict[str, tuple[Any, ...]] = {name: (value,) for name, value in found.items() if value is not None}
    fixed |= {"whole": _whole(given.whole)} if given.whole else {}
    return fixed if given.offload is None else fixed | {"offloads": offloads(given.offload)}


def _count(option: str, number: int | None, least: int = 1, most: int | None = None) -> int | None:
    """A number as it is. Raises InputError where it is out of range."""
    from phaze.errors import InputError

    if number is not None and (number < least or (most is not None and number > most)):
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise InputError(f"{option} {number} must be {allowed}")
    return number


def offloads(text: str) -> tuple[frozenset[Offload], ...]:
    """Choices of what hosts keep: `none`, some of it (`weights+optimizer`), or with `any` every choice.

    Raises InputError for words that are not known.
    """
    from phaze.errors import InputError
    from phaze.inputs.named_choices import nearest
    from phaze.parallel.parallel_plan import Offload

    if text == "any":
        return tuple(frozenset(some) for n in range(len(Offload) + 1) for some in combinations(Offload, n))
    if text == "none":
        return (frozenset(),)
    words, known = [word.strip() for word in text.replace(",", "+").split("+")], [*Offload]
    for word in words:
        if word not in known:
            close = nearest(word, ["none", "any", *known])
            raise InputError(
                f"--offload {text!r}: {word!r} is not known{close}; choose none, any, or of {', '.join(known)} "
                "joined by +"
            )
    return (frozenset(map(Offload, words)),)


def _whole(text: str) -> tuple[frozenset[Shardable], ...]:
    """Sets of layers that may stay whole: `any`, `none`, or some of them joined by `+`. Raises InputError."""
    from phaze.inputs.named_choices import choose
    from phaze.workload.parallel_degrees import Shardable

    if text == "any":
        sizes = range(len(Shardable) + 1)
        return tuple(frozenset(some) for size in sizes for some in combinations(Shardable, size))
    names = () if text == "none" else text.split("+")
    return (frozenset(choose(Shardable, name.strip(), "--whole") for name in names),)


def plan_answer(options: PlanOptions) -> PlanDocument:
    """The best plan within what options fix; the framework says how the workload is built unless options do."""
    from dataclasses import replace

    from phaze.explore.answers.plan_search import find_best_plan
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.recipe_inputs import task_in_recipe
    from phaze.inputs.task_inputs import asked_task

    chip = find_architecture(options.arch)
    task = task_in_recipe(asked_task(options.workload, options), options.recipe, chip)
    return find_best_plan(replace(task, held=held_choices(options)), chip)
