"""Plans from what was asked: the best one for training or one that is fixed, one for every value of what varies, and
the best way to serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError
from phaze.inputs.options.plan_options import ConvergenceOptions, FailureOptions, PlanChoices, PlanOptions
from phaze.inputs.options.task_options import TaskOptions

if TYPE_CHECKING:
    from phaze.explore.documents.plan_document import PlanDocument, WhatIfDocument
    from phaze.explore.request.explore_request import Task
    from phaze.hardware.architecture import Architecture
    from phaze.inputs.options.whatif_options import (
        WhatIfBubblesOptions,
        WhatIfColocateOptions,
        WhatIfFailuresOptions,
        WhatIfOptions,
    )
    from phaze.parallel.failures.goodput import FailingCluster
    from phaze.parallel.parallel_plan import Offload
    from phaze.parallel.statistical_efficiency import BatchChoice
    from phaze.workload.parallel_degrees import Shardable
    from phaze.workload.workload import Mode, Workload

_VARIED = {
    "arch",
    *TaskOptions.described(),
    *PlanChoices.described(),
    *FailureOptions.described(),
    *ConvergenceOptions.described(),
}


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

    if number is not None and (number < least or (most is not None and number > most)):
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise InputError(f"{option} {number} must be {allowed}")
    return number


def offloads(text: str) -> tuple[frozenset[Offload], ...]:
    """Choices of what hosts keep: `none`, some of it (`weights+optimizer`), or with `any` every choice.

    Raises InputError for words that are not known.
    """
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
    from phaze.explore.plans.plan_search import find_best_plan

    task, chip = planned_task(options)
    return find_best_plan(task, chip, failing_cluster(task, options), batch_choice(task.workload, options))


def planned_task(options: PlanOptions) -> tuple[Task, Architecture]:
    """The task within what options fix, and the chip. Raises InputError."""
    from dataclasses import replace

    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.recipe_inputs import task_in_recipe
    from phaze.inputs.task_inputs import asked_task, check_calibration

    chip = find_architecture(options.arch)
    asked = asked_task(options.workload, options)
    check_calibration(asked, [chip], chip.name)
    task = task_in_recipe(asked, options.recipe, chip)
    return replace(task, held=held_choices(options)), chip


def bubbles_answer(options: WhatIfBubblesOptions) -> WhatIfDocument:
    """The best plan with its bubbles, filled with each workload that options name. Raises InputError."""
    from phaze.explore.documents.plan_document import vary
    from phaze.explore.plans.filled_plan import PlanIdling
    from phaze.explore.plans.plan_replay import replay_plan
    from phaze.explore.plans.plan_search import find_best_plan
    from phaze.quantity import parse_time

    switch_s = 0.0 if options.switch is None else parse_time(options.switch, "--switch")
    names = fill_names(options.fill)
    task, chip = planned_task(PlanOptions.of(options.values))
    loaded = {name: _forward(name, task) for name in names}
    found = find_best_plan(task, chip)
    idling = PlanIdling(replay_plan(found, task, chip), task, switch_s)

    def filled(name: str) -> PlanDocument:
        told = idling.record(loaded.get(name))
        return found.model_copy(update={"best": found.best.model_copy(update={"bubbles": told})})

    return vary("fill", names or ["nothing"], filled)


def colocate_answer(options: WhatIfColocateOptions) -> WhatIfDocument:
    """The best plan on one device with each job that options name beside it. Raises InputError."""
    from phaze.explore.documents.plan_document import vary
    from phaze.explore.plans.colocated_jobs import colocated
    from phaze.explore.plans.plan_replay import replay_plan
    from phaze.explore.plans.plan_search import find_best_plan
    from phaze.inputs.named_choices import choose
    from phaze.workload.workload import Mode

    names, mode = fill_names(options.beside), choose(Mode, options.beside_mode, "--beside-mode")
    if not names:
        raise InputError("--beside names no workload")
    task, chip = planned_task(PlanOptions.of(options.values))
    if task.devices != 1:
        raise InputError(f"jobs share one device, not {task.devices}: give --devices 1")
    loaded = {name: _of_mode(name, task, mode) for name in names}
    found = find_best_plan(task, chip)
    played = replay_plan(found, task, chip)

    def beside(name: str) -> PlanDocument:
        told = colocated(played, task, loaded[name], options.beside_batch)
        return found.model_copy(update={"best": found.best.model_copy(update={"colocation": told})})

    return vary("beside", names, beside)


def fill_names(given: str | Sequence[str] | None) -> list[str]:
    """Workloads that fill bubbles, or share a device, each once."""
    names = given.split(",") if isinstance(given, str) else given or ()
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


def _forward(name: str, task: Task) -> Workload:
    """A workload whose forward passes run beside a task, by the same software. Raises InputError."""
    from phaze.workload.workload import Mode

    return _of_mode(name, task, Mode.PREFILL)


def _of_mode(name: str, task: Task, mode: Mode) -> Workload:
    """A workload whose passes run beside a task, by the same software. Raises InputError."""
    from phaze.workload.workload_loader import load_workload

    software = task.framework
    return load_workload(name, mode, software.attention, fusion=software.fusion)


def batch_choice(workload: Workload, options: ConvergenceOptions) -> BatchChoice | None:
    """What batches are worth and which there are, where options say. Raises InputError."""
    from phaze.parallel.statistical_efficiency import BatchChoice, NoiseScale

    if options.noise_scale is None:
        if options.batch_range is not None:
            raise InputError(
                "--batch-range needs --noise-scale: without it the largest batch is always the fastest"
            )
        return None
    noise = NoiseScale(_noise_samples(str(options.noise_scale), workload))
    return BatchChoice(noise, () if options.batch_range is None else _batches(options.batch_range))


def _noise_samples(text: str, workload: Workload) -> float:
    """A noise scale in samples. Raises InputError where it is no number, or unknown of a workload."""
    if text == "own":
        if workload.noise_scale is None:
            raise InputError(
                f"{workload.name} gives no gradient noise scale; give one in samples, for instance --noise-scale 5000"
            )
        return workload.noise_scale
    number, length = text.removesuffix("tokens").strip(), workload.sequence_length
    try:
        found = float(number)
    except ValueError:
        raise InputError(
            f"--noise-scale {text!r} is neither own nor a number of samples or tokens, for instance 5000 or 14e6tokens"
        ) from None
    if number == text.strip():
        return found
    if length is None:
        raise InputError(
            f"--noise-scale {text}: samples of {workload.name} have no tokens; give it in samples"
        )
    return found / length


def _batches(text: str) -> tuple[int, ...]:
    """Batches of a range. Raises InputError."""
    from phaze.parallel.statistical_efficiency import doublings

    least, colon, most = (word.strip() for word in text.partition(":"))
    if not colon or not least.isdecimal() or not most.isdecimal() or not 1 <= int(least) <= int(most):
        raise InputError(
            f"--batch-range {text!r} is not LOW:HIGH, two numbers of samples, for instance 256:8192"
        )
    return doublings(int(least), int(most))


def failing_cluster(task: Task, options: FailureOptions) -> FailingCluster | None:
    """The cluster as it fails, where options say how. Raises InputError."""
    from phaze.inputs.named_choices import choose
    from phaze.parallel.failures.domain_survival import OnFailure
    from phaze.parallel.failures.failure_record import load_failures
    from phaze.parallel.failures.goodput import FailingCluster

    policy = choose(OnFailure, options.on_failure, "--on-failure")
    if options.failures is None:
        if policy is not OnFailure.DROP:
            raise InputError(f"--on-failure {policy} needs --failures, for instance --failures llama3-2024")
        return None
    record = load_failures(options.failures)
    return FailingCluster.of(task.workload, task.cluster, record, policy)


def failures_answer(options: WhatIfFailuresOptions) -> WhatIfDocument:
    """The plans of best goodput for all sizes of scale-up domains. Raises InputError."""
    from phaze.explore.documents.plan_document import vary
    from phaze.hardware.cluster_network import Network, load_network

    sizes = options.domain.split(",") if isinstance(options.domain, str) else [*map(str, options.domain)]
    for size in sizes:
        if not size.strip().isdigit() or int(size) < 1:
            raise InputError(f"--domain: {size.strip()!r} is not a number of devices, for instance 8,32,72")
    given = options.network if isinstance(options.network, Network) else load_network(options.network)

    def planned(size: str) -> PlanDocument:
        network = given.in_domains(int(size))
        return plan_answer(PlanOptions.of(options.values | {"network": network}))

    return vary("domain", [size.strip() for size in sizes], planned)


def whatif_answer(options: WhatIfOptions) -> WhatIfDocument:
    """The best plans for all values, as the options say. Raises InputError."""
    from phaze.explore.documents.plan_document import vary

    name, values = _parsed(options.vary)
    return vary(name, values, lambda value: _planned(name, value, options))


def _parsed(text: str) -> tuple[str, list[str]]:
    """Name and values of what is varied. Raises InputError."""
    name, equals, rest = text.partition("=")
    values = [value.strip() for value in rest.split(",") if value.strip()]
    if not equals or not values or not name.strip():
        raise InputError(f"--vary {text!r} is not NAME=V1,V2,..., for instance devices=64,256,1024")
    return name.strip().replace("-", "_"), values


def _planned(name: str, value: str, options: WhatIfOptions) -> PlanDocument:
    """The best plan with one thing changed. Raises InputError for a name or a value there is not."""
    from phaze.hardware.hardware_fields import field_named, field_table
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.named_choices import nearest

    changed: dict[str, Any]
    if name in _VARIED:
        changed = {name: _value(name, value)}
    elif name not in field_table():
        close = nearest(name, [*sorted(_VARIED), *field_table()])
        raise InputError(
            f"--vary {name}: neither an option of dse plan nor a hardware field is called so{close}; for instance "
            "devices=64,256, zero=0,1,3 or hbm_stacks=4,5,6"
        )
    else:
        parsed = field_named(name, "--vary").parse(value, "--vary")
        chip = find_architecture(options.arch)
        changed = {"arch": chip.replace(f"{chip.name} {name} {value}", **{name: parsed})}
    return plan_answer(PlanOptions.of(options.values | changed))


def _value(name: str, text: str) -> object:
    """A value of what is varied, as the model of options holds it. Raises InputError."""
    told, _ = PlanOptions.described()[name]
    if str(told.type).startswith(("int", "bool")):
        return _whole_number(name, text)
    return [text] if name == "workload" else text


def _whole_number(name: str, text: str) -> int:
    if name == "sequence_parallel" and text in ("true", "false"):
        return text == "true"
    if not text.isdigit():
        raise InputError(f"--vary {name}: {text!r} is not a whole number")
    return int(text)
