"""What the explorer is asked, from the options of `dse run`: the same in every place that has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError
from phaze.inputs.named_choices import choose
from phaze.inputs.option_models import DEVICES
from phaze.inputs.recipe_inputs import arrays_of, with_recipe
from phaze.inputs.task_inputs import make_budgets, make_space, make_task, one_workload
from phaze.quantity import Quantity, parse_power, parse_time

if TYPE_CHECKING:
    from phaze.explore.request.explore_request import (
        ClusterBudget,
        ExploreRequest,
        StrategyChoice,
        Task,
        TrainingLength,
    )
    from phaze.inputs.task_inputs import Source
    from phaze.workload.operators.low_precision import Recipe

CERTIFIED = "certified"


def make_request(asked: Mapping[str, Any]) -> ExploreRequest:
    """The request behind the values of `dse run`'s options, by their names in Python.

    Raises InputError where a value is no good; whether the options go together is for `explore` to say.
    """
    from phaze.explore.request.common_score import Combine
    from phaze.explore.request.explore_request import ExploreRequest, Objective

    space = make_space(asked["space"], asked["node"], asked["clock"], asked["fix"] or ())
    first, *others = (with_recipe(task, asked["recipe"], arrays_of(space)) for task in make_tasks(asked))
    if not 0 <= asked["gap"] < math.inf:
        raise InputError(f"--gap {asked['gap']} is not a share of 0 or more; write for example --gap 0.01")
    return ExploreRequest(
        task=first,
        others=tuple(others),
        space=space,
        budgets=make_budgets(
            asked["power"],
            asked["area"],
            asked["tdp_margin"],
            dvfs=asked["dvfs"],
            power_density=asked["power_density"],
        ),
        objective=choose(Objective, asked["objective"], "--objective"),
        time_limit_s=parse_time(asked["time_limit"], "--time-limit"),
        gap=asked["gap"],
        seed=asked["seed"],
        combine=choose(Combine, asked["combine"], "--combine"),
        weights=weights(asked["weight"] or (), [task.workload.name for task in (first, *others)]),
        min_throughput=asked["min_throughput"],
        max_latency_s=_optional(parse_time, asked["max_latency"], "--max-latency"),
        cluster=_cluster(asked),
        strategy=_strategy(asked, per_stage=space.heterogeneous, recipe=first.recipe),
        axes=tuple(name.strip() for name in (asked["axes"] or "").split(",") if name.strip()),
        robust=asked["robust"],
        length=_length(asked),
    )


def make_tasks(asked: Mapping[str, Any]) -> tuple[Task, ...]:
    """Every workload that was named, each on its own cluster of as many devices."""
    return tuple(asked_task([workload], asked) for workload in asked["workload"])


def asked_task(workloads: Sequence[Source], asked: Mapping[str, Any]) -> Task:
    """A workload on the cluster that the other options describe, with the plans and the software that are asked for.

    The software says how attention runs and what is fused unless options do. Raises InputError for several workloads.
    """
    from phaze.parallel.framework import Framework, load_framework
    from phaze.parallel.plan_choices import Plans, load_plans
    from phaze.workload.fusion_rules import describe_fusion

    plans, software = asked["plans"], asked["framework"]
    plans = plans if isinstance(plans, Plans) else load_plans(plans)
    software = software if isinstance(software, Framework) else load_framework(software)
    loading = {"attention": "flash", "fusion": "all"}
    if isinstance(one_workload(workloads), str | Path):
        loading = {"attention": software.attention.value, "fusion": describe_fusion(software.fusion)}
    task = make_task(
        workloads,
        mode=asked["mode"],
        devices=DEVICES if asked["devices"] is None else asked["devices"],
        global_batch=asked["global_batch"],
        network=asked["network"],
        bind=asked["bind"] or (),
        context=asked["context"],
        kv_cache=asked["kv_cache"],
        attention=asked["attention"] or loading["attention"],
        fusion=asked["fusion"] or loading["fusion"],
        rung=asked.get("rung", "analytic"),
        calibration=asked.get("calibration"),
    )
    return replace(task, framework=software, plans=plans)


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


def _cluster(asked: Mapping[str, Any]) -> ClusterBudget | None:
    from phaze.explore.request.explore_request import ClusterBudget

    power, cost = asked["cluster_power"], asked["cluster_cost"]
    if not 1 <= asked["cluster_overhead"] < math.inf:
        raise InputError(f"--cluster-overhead {asked['cluster_overhead']:g} must be at least 1")
    if power is None and cost is None:
        return None
    if asked["devices"] is not None:
        given = "--cluster-power" if cost is None else "--cluster-cost"
        raise InputError(f"{given} leaves the number of devices free: leave out --devices")
    if cost is not None and not 0 < cost < math.inf:
        raise InputError(f"--cluster-cost {cost:g} must be a number of USD greater than zero")
    return ClusterBudget(_optional(parse_power, power, "--cluster-power"), asked["cluster_overhead"], cost)


def _strategy(asked: Mapping[str, Any], *, per_stage: bool, recipe: Recipe | None) -> StrategyChoice | None:
    """The search without proof that was asked for, its own options among those of `dse run`."""
    from phaze.explore.request.explore_request import Designs, StrategyChoice

    own = {name: asked[name] for name in ("evaluations", "designs", "top_k") if asked[name] is not None}
    name = asked["strategy"]
    for option in own:
        if name == CERTIFIED and option == "evaluations":
            raise InputError("--evaluations is for a search without proof: name one with --strategy")
        if name != "wham" and option != "evaluations":
            raise InputError(f"--{option.replace('_', '-')} needs --strategy wham")
    if name == CERTIFIED:
        return None
    if "designs" in own:
        own["designs"] = choose(Designs, own["designs"], "--designs")
        per_stage = own["designs"] is Designs.PER_STAGE
    if per_stage and recipe is not None:
        raise InputError(
            f"stages with designs of their own run in one precision, not also in {recipe}: --recipe none"
        )
    return StrategyChoice(name, **own)


def _length(asked: Mapping[str, Any]) -> TrainingLength | None:
    from phaze.explore.request.explore_request import TrainingLength

    tokens, samples = asked["tokens"], asked["samples"]
    if tokens is not None and samples is not None:
        raise InputError("--tokens and --samples say the same twice: give one")
    for name in ("tokens", "samples", "electricity_price"):
        if asked[name] is not None and not 0 < asked[name] < math.inf:
            raise InputError(f"--{name.replace('_', '-')} {asked[name]:g} must be a number greater than zero")
    if asked["pue"] is not None and not 1 <= asked["pue"] < math.inf:
        raise InputError(f"--pue {asked['pue']:g} must be at least 1")
    if tokens is None and samples is None:
        return None
    return TrainingLength(tokens, samples, asked["electricity_price"], asked["pue"])


def _optional(parse: Any, text: Quantity | None, name: str) -> float | None:  # noqa: ANN401 - a parser of phaze.quantity
    return None if text is None else float(parse(text, name))
