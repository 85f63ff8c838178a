"""Workloads, budgets and spaces from what was asked: one place for all verbs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError
from phaze.inputs.economic_inputs import make_economics
from phaze.inputs.named_choices import choose
from phaze.inputs.options.offered_values import DEVICES
from phaze.inputs.options.task_options import BindOptions, PassOptions
from phaze.inputs.workload_sources import one_workload
from phaze.quantity import parse_area, parse_frequency, parse_power, parse_power_density

if TYPE_CHECKING:
    from phaze.explore.request.explore_request import Budgets, Task
    from phaze.hardware.architecture import Architecture
    from phaze.hardware.spaces.design_space import DesignSpace
    from phaze.inputs.options.search_options import BudgetOptions, SpaceOptions
    from phaze.inputs.options.task_options import TaskOptions
    from phaze.inputs.workload_sources import Source
    from phaze.parallel.framework import Framework
    from phaze.workload.operators.kv_cache import CacheFormat
    from phaze.workload.workload import Workload


_AS_USUAL: dict[str, Any] = {
    "mode": "training",
    "attention": "flash",
    "bind": None,
    "context": None,
    "kv_cache": "contiguous",
    "kv_cache_format": None,
    "fusion": "all",
}
"""How workloads at hand were loaded."""


def asked_task(workloads: Sequence[Source], options: TaskOptions) -> Task:
    """A workload on the cluster that options describe, with the plans and the software that are asked for.

    The software says how attention runs and what is fused unless options do. Raises InputError for several workloads.
    """
    from phaze.cost.fidelity import Fidelity
    from phaze.cost.kernels.fitted_constants import load_calibration
    from phaze.explore.request.explore_request import Task
    from phaze.hardware.cluster_network import Network, load_network
    from phaze.parallel.framework import Framework, load_framework
    from phaze.parallel.plan_choices import Plans, load_plans

    plans, software, network = options.plans, options.framework, options.network
    software = software if isinstance(software, Framework) else load_framework(software)
    fitted = options.calibration
    return Task(
        _workload(one_workload(workloads), options, software),
        DEVICES if options.devices is None else options.devices,
        network if isinstance(network, Network) else load_network(network),
        options.global_batch,
        choose(Fidelity, "calibrated" if fitted else options.rung, "--rung"),
        load_calibration(fitted) if fitted else None,
        framework=software,
        plans=plans if isinstance(plans, Plans) else load_plans(plans),
        economics=make_economics(options),
    )


def check_calibration(task: Task, chips: Sequence[Architecture], what: str) -> None:
    """Raises InputError where constants were given that none of the chips (`what`) is of the family of."""
    own = task.calibration
    families = sorted({str(chip.value("family")) for chip in chips})
    if own is not None and own.family not in families:
        raise InputError(
            f"--calibration is of {own.chip} and serves chips of the family {own.family}; {what} is of "
            f"{', '.join(families)}"
        )


def _workload(source: Source, options: TaskOptions, software: Framework) -> Workload:
    """A workload as it is at hand, or loaded as options and software say.

    Raises InputError where an option that only loading heeds is given for a workload that is loaded already.
    """
    from phaze.workload.fusion_rules import describe_fusion, parse_fusion
    from phaze.workload.operators.kv_cache import KvCache
    from phaze.workload.workload import Attention, Mode
    from phaze.workload.workload_loader import load_workload

    if not isinstance(source, str | Path):
        _check_as_usual(source, options)
        return source
    passes = PassOptions.of(options.values)  # verbs that have none of these take the default pass
    return load_workload(
        str(source),
        choose(Mode, passes.mode, "--mode"),
        choose(Attention, options.attention or software.attention.value, "--attention"),
        global_batch=options.global_batch,
        bind=bindings(BindOptions.of(options.values).bind or ()),
        context=passes.context,
        kv_cache=choose(KvCache, passes.kv_cache, "--kv-cache"),
        kv_cache_format=cache_format(passes.kv_cache_format),
        fusion=parse_fusion(options.fusion or describe_fusion(software.fusion), "--fusion"),
    )


def cache_format(word: str | None) -> CacheFormat | None:
    """Format of a key-value cache; None: the model's own. Raises InputError."""
    from phaze.workload.operators.kv_cache import CacheFormat

    return None if word is None else choose(CacheFormat, word, "--kv-cache-format")


def _check_as_usual(workload: Workload, options: TaskOptions) -> None:
    """Raises InputError where an object is no workload, or is to be loaded in another way than it was."""
    if not hasattr(workload, "chain"):
        raise InputError(f"--workload {workload!r} is neither a name, nor a path, nor a workload")
    values = options.values
    given = [
        f"--{name.replace('_', '-')}"
        for name, usual in _AS_USUAL.items()
        if (values.get(name) or None) not in (None, usual)
    ]
    if given:
        raise InputError(
            f"{workload.name} is loaded already: {', '.join(given)} are for workloads given by name or file"
        )


def open_workload(name: str, *, mode: str, attention: str, bind: Sequence[str] = ()) -> Workload:
    """A workload to look at."""
    from phaze.workload.workload import Attention, Mode
    from phaze.workload.workload_loader import load_workload

    kind = choose(Attention, attention, "--attention")
    return load_workload(name, choose(Mode, mode, "--mode"), kind, bind=bindings(bind))


def bindings(texts: Sequence[str]) -> dict[str, int] | None:
    """Sizes of a file's symbolic dimensions, from `seq=2048,image=224`."""
    found = {}
    for part in ",".join(texts).split(","):
        if not part:
            continue
        name, _, size = (piece.strip() for piece in part.rpartition("="))
        if not name or not size.isdigit() or int(size) < 1:
            raise InputError(f"--bind {part!r} is not NAME=SIZE with a whole size, for instance seq=2048")
        found[name] = int(size)
    return found or None


def make_budgets(options: BudgetOptions) -> Budgets:
    """Limits per accelerator."""
    from phaze.explore.request.explore_request import Budgets, PowerMeans

    means = choose(PowerMeans, options.power_means, "--power-means")
    if means is PowerMeans.SUSTAINED:
        _check_sustained(options)
    power, area, density, margin = options.power, options.area, options.power_density, options.tdp_margin
    if not 0 < margin < math.inf:
        raise InputError(f"--tdp-margin {margin:g} must be a number greater than zero")
    return Budgets(
        power_w=parse_power(power, "--power") if power is not None else None,
        area_mm2=parse_area(area, "--area") if area is not None else None,
        tdp_margin=margin,
        dvfs=options.dvfs,
        power_density_w_per_mm2=(
            parse_power_density(density, "--power-density") if density is not None else None
        ),
        economics=make_economics(options),
        power_means=means,
    )


def _check_sustained(options: BudgetOptions) -> None:
    """Raises InputError where no power is given that a board should sustain, or clocks follow from another one."""
    if options.power is None:
        raise InputError(
            "--power-means sustained says what --power limits: give one, for instance --power 400W"
        )
    if options.dvfs:
        raise InputError(
            "--dvfs lowers clocks until the worst case holds; with --power-means sustained they are searched: "
            "leave out --dvfs"
        )


def searched_space(options: SpaceOptions, budgets: Budgets) -> DesignSpace:
    """The space that is asked for, with the clocks that designs begin from.

    Lower ones are on offer where boards have to sustain a power; where clocks are lowered until a power budget holds,
    all begin at the highest.
    """
    from phaze.hardware.spaces.clock_steps import with_highest_clock, with_lower_clocks

    space = make_space(options)
    if budgets.dvfs:
        return with_highest_clock(space, "--dvfs")
    return space if budgets.drawn_limit_w is None else with_lower_clocks(space)


def make_space(options: SpaceOptions) -> DesignSpace:
    """A design space, with the process node, the clock and fields (`FIELD=VALUE`) fixed where asked."""
    from phaze.hardware.hardware_fields import field_named
    from phaze.hardware.spaces.clock_steps import with_one_clock, without_overdrive
    from phaze.hardware.spaces.design_space import DesignSpace
    from phaze.hardware.spaces.space_file import load_space
    from phaze.hardware.spaces.space_fix import fix

    _check_said_once(options)
    given = options.space if isinstance(options.space, DesignSpace) else load_space(options.space)
    space = given
    if options.node is not None:
        space = space.fixed(node=field_named("node", "--node").parse(options.node.upper(), "--node"))
    if options.clock is not None:
        space = with_one_clock(space, parse_frequency(options.clock, "--clock"), "--clock")
    space = fix(space, options.fix or ())
    # The clocks of a space are those of its own node.
    return space if space.base.value("node") == given.base.value("node") else without_overdrive(space)


def _check_said_once(options: SpaceOptions) -> None:
    """Raises InputError where an option and `--fix` hold the same field."""
    fixed = {text.partition("=")[0].strip() for text in options.fix or ()}
    for name, field in (("--node", "node"), ("--clock", "clock_hz")):
        if field in fixed and getattr(options, name.removeprefix("--")) is not None:
            raise InputError(f"{name} and --fix {field}=... say the same: give one of them")
