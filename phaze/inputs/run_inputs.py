"""Request to the explorer, from the options of `dse run`: the same in every place that has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError
from phaze.inputs.named_choices import choose
from phaze.inputs.options.offered_values import SERVING_DEVICES
from phaze.inputs.options.search_options import RunOptions
from phaze.inputs.recipe_inputs import arrays_of, with_recipe
from phaze.inputs.task_inputs import (
    asked_task,
    cache_format,
    check_calibration,
    make_budgets,
    searched_space,
)
from phaze.inputs.workload_sources import one_workload
from phaze.quantity import Quantity, parse_power, parse_time

if TYPE_CHECKING:
    from phaze.explore.request.explore_request import (
        ClusterBudget,
        ExploreRequest,
        StrategyChoice,
        Task,
        TrainingLength,
    )
    from phaze.explore.services.service_request import ServiceRequest
    from phaze.parallel.serving import Traffic
    from phaze.workload.operators.low_precision import Recipe

CERTIFIED = "certified"
_OF_SERVICES = (
    *(
        "prompt",
        "output_tokens",
        "ttft",
        "tpot",
        "disaggregate",
        "engine",
        "expert_skew",
        "redundant_experts",
    ),
)
_NOT_OF_SERVICES = (
    *("global_batch", "plans", "framework", "attention", "fusion", "calibration", "bind", "mode", "context"),
    *("axes", "strategy", "evaluations", "top_k", "robust", "combine", "weight", "min_throughput"),
    *("max_latency", "cluster_power", "cluster_cost", "cluster_overhead", "tokens", "samples", "power_means"),
    *("workers", "executor", "resume"),
)


def is_of_services(name: str) -> bool:
    """Whether an option of `dse run` says something where it looks for the chip of a service."""
    return name not in (*_NOT_OF_SERVICES, "no_cache", "json", "quiet")


def make_request(options: RunOptions) -> ExploreRequest:
    """The request behind the options of `dse run`.

    Raises InputError where a value is no good; whether the options go together is for `explore` to say.
    """
    from phaze.explore.request.common_score import Combine
    from phaze.explore.request.explore_request import ExploreRequest, Objective

    if options.serve is not None:
        raise InputError(
            "--serve looks for the chip of a service, which is asked on the command line: dse run --serve"
        )
    for name in _OF_SERVICES:
        if getattr(options, name) is not None:
            raise InputError(f"{_flag(name)} is for a service: give --serve")
    if len(options.workload) < 2 and (options.weight or options.combine != RunOptions.combine):
        given = "weight" if options.weight else "combine"
        raise InputError(f"--{given} is for several workloads: give --workload more than once")
    budgets = make_budgets(options)
    space = searched_space(options, budgets)
    first, *others = (with_recipe(task, options.recipe, arrays_of(space)) for task in make_tasks(options))
    check_calibration(first, [space.base], f"space {space.name} (base: {space.base.name})")
    if not 0 <= options.gap < math.inf:
        raise InputError(f"--gap {options.gap} is not a share of 0 or more; write for example --gap 0.01")
    return ExploreRequest(
        task=first,
        others=tuple(others),
        space=space,
        budgets=budgets,
        objective=choose(Objective, options.objective, "--objective"),
        time_limit_s=parse_time(options.time_limit, "--time-limit"),
        gap=options.gap,
        seed=options.seed,
        combine=choose(Combine, options.combine, "--combine"),
        weights=weights(options.weight or (), [task.workload.name for task in (first, *others)]),
        min_throughput=options.min_throughput,
        max_latency_s=_optional(parse_time, options.max_latency, "--max-latency"),
        cluster=_cluster(options),
        strategy=_strategy(options, per_stage=space.heterogeneous, recipe=first.recipe),
        axes=tuple(name.strip() for name in (options.axes or "").split(",") if name.strip()),
        robust=options.robust,
        length=_length(options),
        two_designs=_two_designs(options),
    )


def make_tasks(options: RunOptions) -> tuple[Task, ...]:
    """Every workload that was named, each on its own cluster of as many devices."""
    return tuple(asked_task([workload], options) for workload in options.workload)


def weights(texts: Sequence[str], names: Sequence[str]) -> tuple[float, ...]:
    """Weights of the workloads from `NAME=NUMBER`, 1 where nothing is said; none at all where nothing is."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        if name not in names:
            raise InputError(f"--weight {text!r} names none of the workloads {', '.join(names)}")
        try:
            found[name] = float(number)
        except ValueError as error:
            raise InputError(f"--weight {text!r} is not NAME=NUMBER, for instance {name}=2") from error
        if not 0 < found[name] < math.inf:
            raise InputError(f"--weight {text!r} must be a number greater than zero")
    return tuple(found.get(name, 1.0) for name in names) if found else ()


def _cluster(options: RunOptions) -> ClusterBudget | None:
    from phaze.explore.request.explore_request import ClusterBudget

    power, cost = options.cluster_power, options.cluster_cost
    if not 1 <= options.cluster_overhead < math.inf:
        raise InputError(f"--cluster-overhead {options.cluster_overhead:g} must be at least 1")
    if power is None and cost is None:
        return None
    if options.devices is not None:
        given = "--cluster-power" if cost is None else "--cluster-cost"
        raise InputError(f"{given} leaves the number of devices free: leave out --devices")
    if cost is not None and not 0 < cost < math.inf:
        raise InputError(f"--cluster-cost {cost:g} must be a number of USD greater than zero")
    return ClusterBudget(_optional(parse_power, power, "--cluster-power"), options.cluster_overhead, cost)


def _two_designs(options: RunOptions) -> bool:
    from phaze.explore.request.explore_request import Designs

    return options.designs == Designs.TWO.value


def _strategy(options: RunOptions, *, per_stage: bool, recipe: Recipe | None) -> StrategyChoice | None:
    """The search without proof that was asked for, its own options among those of `dse run`."""
    from phaze.explore.request.explore_request import Designs, StrategyChoice

    given = {"evaluations": options.evaluations, "designs": options.designs, "top_k": options.top_k}
    own: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    name = options.strategy
    if "designs" in own:
        own["designs"] = choose(Designs, own["designs"], "--designs")
    if _two_designs(options):
        own.pop("designs")  # a question of its own
    for option in own:
        if name == CERTIFIED and option == "evaluations":
            raise InputError("--evaluations is for a search without proof: name one with --strategy")
        if name != "wham" and option != "evaluations":
            raise InputError(f"--{option.replace('_', '-')} needs --strategy wham")
    if name == CERTIFIED:
        return None
    if "designs" in own:
        per_stage = own["designs"] is Designs.PER_STAGE
    if per_stage and recipe is not None:
        raise InputError(
            f"stages with designs of their own run in one precision, not also in {recipe}: --recipe none"
        )
    return StrategyChoice(name, **own)


def _length(options: RunOptions) -> TrainingLength | None:
    from phaze.explore.request.explore_request import TrainingLength

    tokens, samples = options.tokens, options.samples
    if tokens is not None and samples is not None:
        raise InputError("--tokens and --samples are two ways to say the same: give one of them")
    positive = {"tokens": tokens, "samples": samples}
    for name, value in positive.items():
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"--{name} {value:g} must be a number greater than zero")
    if tokens is None and samples is None:
        return None
    return TrainingLength(tokens, samples)


def _optional(parse: Any, text: Quantity | None, name: str) -> float | None:  # noqa: ANN401 - a parser of phaze.quantity
    return None if text is None else float(parse(text, name))


def make_service(options: RunOptions) -> ServiceRequest:
    """The question for the chip of a service behind the options of `dse run --serve`.

    Raises InputError where a value is no good, or an option is not one of services.
    """
    from phaze.cost.fidelity import Fidelity
    from phaze.explore.request.explore_request import Designs
    from phaze.explore.services.service_request import ServiceObjective, ServiceRequest
    from phaze.hardware.cluster_network import Network, load_network
    from phaze.inputs.recipe_inputs import arrays_of, served_recipe
    from phaze.inputs.serving_inputs import expert_load
    from phaze.parallel.serving import ServingOptions, ServingSpace, Targets
    from phaze.parallel.serving.serving_engine import NO_ENGINE, load_engine

    defaults = RunOptions.defaults()
    for name in _NOT_OF_SERVICES:
        if getattr(options, name) != defaults[name]:
            raise InputError(f"{_flag(name)} is not for a service: leave out either it or --serve")
    if options.designs not in (None, Designs.TWO.value):
        raise InputError(
            f"--designs {options.designs} is not for a service: give 2, one chip for prefill pools and one for decode "
            "pools, or leave it out"
        )
    source, network = one_workload(options.workload), options.network
    budgets = make_budgets(options)
    space = searched_space(options, budgets)
    if space.network_axes is not None:
        raise InputError(
            f"space {space.name} has networks, which --serve does not search: give one without `network`"
        )
    plans = ServingSpace(
        str(source),
        space.base,
        SERVING_DEVICES if options.devices is None else options.devices,
        network if isinstance(network, Network) else load_network(network),
        _load(options),
        Targets(
            _optional(parse_time, options.ttft, "--ttft") or math.inf,
            _optional(parse_time, options.tpot, "--tpot") or math.inf,
        ),
        ServingOptions(
            kv_cache_format=cache_format(options.kv_cache_format),
            recipe=served_recipe(options.recipe, arrays_of(space)),
            disaggregate=options.disaggregate,
            rung=choose(Fidelity, options.rung, "--rung"),
            engine=NO_ENGINE if options.engine is None else load_engine(options.engine),
            expert_load=expert_load(options.expert_skew, options.redundant_experts),
        ),
    )
    if not 0 <= options.gap < math.inf:
        raise InputError(f"--gap {options.gap} is not a share of 0 or more; write for example --gap 0.01")
    return ServiceRequest(
        plans,
        space,
        budgets,
        choose(ServiceObjective, options.objective, "--objective"),
        parse_time(options.time_limit, "--time-limit"),
        options.gap,
        two_chips=_two_designs(options),
    )


def _load(options: RunOptions) -> Traffic:
    """Requests of a service: their sizes, and how they come."""
    from phaze.parallel.serving import Traffic

    told = options.serve or ""
    sizes = Traffic(options.prompt or 2048, options.output_tokens or 256)
    kind, equals, number = (part.strip() for part in told.partition("="))
    try:
        if kind == "saturated" and not equals:
            return sizes
        if kind == "rate":
            return replace(sizes, rate_per_s=float(number))
        if kind == "concurrency":
            return replace(sizes, clients=int(number))
    except (ValueError, InputError):
        pass
    raise InputError(
        f"--serve {told!r} is not a load: write saturated, rate=6 (requests/s) or concurrency=64 (clients)"
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
