"""Workloads, budgets and spaces from what was asked: one place for all verbs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError
from phaze.inputs.named_choices import choose
from phaze.quantity import Quantity, parse_area, parse_frequency, parse_power, parse_power_density

if TYPE_CHECKING:
    from phaze.explore.request.explore_request import Budgets, Task
    from phaze.hardware.cluster_network import Network
    from phaze.hardware.spaces.design_space import DesignSpace
    from phaze.workload.workload import Workload

    Source = str | Path | Workload
    """A built-in name, a file, `hf:CONFIG.JSON`, or a workload that is at hand."""


_AS_USUAL: dict[str, Any] = {
    "mode": "training",
    "attention": "flash",
    "bind": None,
    "context": None,
    "kv_cache": "contiguous",
    "fusion": "all",
}


def name_of(source: Source) -> str:
    """What a workload is called: its name, or as it was asked for."""
    return str(source) if isinstance(source, str | Path) else source.name


def one_workload(sources: Sequence[Source]) -> Source:
    """The workload asked for. InputError where `--workload` was given more than once."""
    if len(sources) != 1:
        names = ", ".join(map(name_of, sources))
        raise InputError(
            f"--workload is given {len(sources)} times ({names}); only dse run looks for one design "
            "for several workloads, so give one"
        )
    return sources[0]


def make_task(
    workloads: Sequence[Source],
    *,
    devices: int,
    global_batch: int | None,
    network: str | Path | Network,
    rung: str = "analytic",
    calibration: Path | None = None,
    **loading: Any,  # noqa: ANN401 - options of `make_workload`
) -> Task:
    """A workload on a cluster."""
    from phaze.cost.fidelity import Fidelity
    from phaze.cost.kernels.fitted_constants import load_calibration
    from phaze.explore.request.explore_request import Task
    from phaze.hardware.cluster_network import Network, load_network

    return Task(
        make_workload(one_workload(workloads), global_batch=global_batch, **loading),
        devices,
        network if isinstance(network, Network) else load_network(network),
        global_batch,
        choose(Fidelity, "calibrated" if calibration else rung, "--rung"),
        load_calibration(calibration) if calibration else None,
    )


def make_workload(source: Source, *, global_batch: int | None, **loading: Any) -> Workload:  # noqa: ANN401
    """A workload as it is at hand, or loaded with the options of `_AS_USUAL`.

    Raises InputError where such an option is given for a workload that is loaded already.
    """
    from phaze.workload.fusion_rules import parse_fusion
    from phaze.workload.operators.kv_cache import KvCache
    from phaze.workload.workload import Attention, Mode
    from phaze.workload.workload_loader import load_workload

    asked = {**_AS_USUAL, **loading}
    if not isinstance(source, str | Path):
        _check_as_usual(source, asked)
        return source
    return load_workload(
        str(source),
        choose(Mode, asked["mode"], "--mode"),
        choose(Attention, asked["attention"], "--attention"),
        global_batch=global_batch,
        bind=bindings(asked["bind"] or ()),
        context=asked["context"],
        kv_cache=choose(KvCache, asked["kv_cache"], "--kv-cache"),
        fusion=parse_fusion(asked["fusion"], "--fusion"),
    )


def _check_as_usual(workload: Workload, asked: dict[str, Any]) -> None:
    """Raises InputError where an object is no workload, or is to be loaded in another way than it was."""
    if not hasattr(workload, "chain"):
        raise InputError(f"--workload {workload!r} is neither a name, nor a path, nor a workload")
    given = [
        f"--{name.replace('_', '-')}" for name, usual in _AS_USUAL.items() if (asked[name] or None) != usual
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


def make_budgets(
    power: Quantity | None,
    area: Quantity | None,
    tdp_margin: float,
    *,
    dvfs: bool = False,
    power_density: Quantity | None = None,
) -> Budgets:
    """Limits per accelerator."""
    from phaze.explore.request.explore_request import Budgets

    if not 0 < tdp_margin < math.inf:
        raise InputError(f"--tdp-margin {tdp_margin:g} must be a number greater than zero")
    return Budgets(
        power_w=parse_power(power, "--power") if power is not None else None,
        area_mm2=parse_area(area, "--area") if area is not None else None,
        tdp_margin=tdp_margin,
        dvfs=dvfs,
        power_density_w_per_mm2=(
            parse_power_density(power_density, "--power-density") if power_density is not None else None
        ),
    )


def make_space(
    named: str | Path | DesignSpace, node: str | None, clock: Quantity | None, held: Sequence[str] = ()
) -> DesignSpace:
    """A design space, with the process node, the clock and the fields of `held` (`FIELD=VALUE`) fixed where asked."""
    from phaze.hardware.hardware_fields import field_named
    from phaze.hardware.spaces.design_space import DesignSpace
    from phaze.hardware.spaces.space_file import load_space
    from phaze.hardware.spaces.space_fix import fix

    space = named if isinstance(named, DesignSpace) else load_space(named)
    if node is not None:
        space = space.fixed(node=field_named("node", "--node").parse(node.upper(), "--node"))
    if clock is not None:
        space = space.fixed(clock_hz=parse_frequency(clock, "--clock"))
    return fix(space, held)
