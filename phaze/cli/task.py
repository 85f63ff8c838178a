"""From what was typed to what the explorer is asked: one place for all verbs."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.cli.output import choose
from phaze.errors import InputError
from phaze.quantity import parse_area, parse_frequency, parse_power

if TYPE_CHECKING:
    from phaze.explore.request import Budgets, Task
    from phaze.hardware.architecture import Architecture
    from phaze.hardware.space import DesignSpace
    from phaze.placement.cluster import FixedDegrees


def make_task(
    workload: str,
    *,
    mode: str,
    attention: str,
    devices: int,
    global_batch: int | None,
    network: str,
    fixed: FixedDegrees | None = None,
) -> Task:
    """A workload on a cluster."""
    from phaze.explore.request import Task
    from phaze.hardware.network import load_network
    from phaze.placement.cluster import FixedDegrees
    from phaze.workload.spec import load_workload
    from phaze.workload.workload import Attention, Mode

    kind = choose(Attention, attention, "--attention")
    loaded = load_workload(workload, choose(Mode, mode, "--mode"), kind, global_batch=global_batch)
    return Task(loaded, devices, load_network(network), global_batch, fixed or FixedDegrees())


def make_budgets(power: str | None, area: str | None, tdp_margin: float, *, dvfs: bool = False) -> Budgets:
    """Limits per accelerator."""
    from phaze.explore.request import Budgets

    if not 0 < tdp_margin < math.inf:
        raise InputError(f"--tdp-margin {tdp_margin:g} must be a number greater than zero")
    return Budgets(
        power_w=parse_power(power, "--power") if power is not None else None,
        area_mm2=parse_area(area, "--area") if area is not None else None,
        tdp_margin=tdp_margin,
        dvfs=dvfs,
    )


def make_space(name: str, node: str | None, clock: str | None) -> DesignSpace:
    """A design space, with the process node and the clock fixed where asked."""
    from phaze.hardware.space_file import load_space

    space = load_space(name)
    if node is not None:
        space = space.fixed(node=node)
    if clock is not None:
        space = space.fixed(clock_hz=parse_frequency(clock, "--clock"))
    return space


def find_architecture(name: str) -> Architecture:
    """An architecture by name, YAML file or run directory (its winner)."""
    from phaze.hardware.architecture import load_architecture

    folder = Path(name)
    return load_architecture(folder / "architecture.yaml" if folder.is_dir() else name)


def run_folder(out: Path | None, workload: str) -> Path:
    """The folder asked for, or the default one of this moment."""
    from phaze.runs.directory import default_directory

    return out or default_directory(Path(workload).stem, datetime.now(UTC))


def input_files(workload: str, space: str, network: str) -> dict[str, Path]:
    """The files behind what was asked, built-in ones included."""
    from importlib.resources import files

    from phaze.hardware.catalogue import Catalogue, find
    from phaze.workload.spec import builtin_names

    builtin = workload in builtin_names()
    model = Path(str(files("phaze.workloads").joinpath(f"{workload}.yaml"))) if builtin else Path(workload)
    return {
        "workload": model,
        "space": find(Catalogue.SPACE, space),
        "network": find(Catalogue.NETWORK, network),
    }
