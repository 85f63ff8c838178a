"""Look around from Python: `phaze.archs`, `workloads`, `networks`, `spaces`, `frameworks`, `plans`, each what its noun
lists on the command line; and the solvers alone, `phaze.solve_schedule`, `solve_placement`, `solve_fleet`,
`solve_layers`, `solve_instances` and `solve_hosts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.python_arguments import speaks_python
from phaze.api.result_tables import Table, columns_of

if TYPE_CHECKING:
    from phaze.quantity import Quantity
    from phaze.solvers.hosts import HostShares, InstanceSplit
    from phaze.solvers.layerwise import LayerResult
    from phaze.solvers.placement import PlacementResult
    from phaze.solvers.placement.general import GeneralResult
    from phaze.solvers.rental import Composition
    from phaze.solvers.scheduling import ScheduleResult

Row = dict[str, Any]


@speaks_python
def archs() -> Table[Row]:
    """List the chips that have a name, with published figures, or the model's where none is published.

    Each name is taken as `arch`; `phaze.hardware.architecture.load_architecture` has all fields.

    Raises InputError where another package brings a chip that cannot be read.

    Example:
        >>> import phaze
        >>> next(chip["tdp_w"] for chip in phaze.archs() if chip["name"] == "h100")
        700.0
    """
    from phaze.hardware.architecture import load_architecture, to_table
    from phaze.hardware.catalogue import Catalogue, registry
    from phaze.hardware.derived_figures import (
        hbm_bandwidth_bytes_per_s,
        hbm_capacity_bytes,
        peak_flops_per_s,
    )
    from phaze.hardware.silicon.die_area import area_mm2
    from phaze.hardware.silicon.package_power import tdp_w

    chips = [load_architecture(path) for path in registry(Catalogue.ARCHITECTURE).all().values()]
    table = to_table(chips)
    laws = (tdp_w, area_mm2, peak_flops_per_s, hbm_bandwidth_bytes_per_s, hbm_capacity_bytes)
    figures = zip(*(law(table).tolist() for law in laws), strict=True)
    rows = [
        {
            "name": chip.name,
            "description": chip.description,
            "node": chip.value("node"),
            "tdp_w": chip.published_tdp_w or tdp,
            "area_mm2": chip.published_area_mm2 or area,
            "peak_flop_per_s": peak,
            "hbm_bandwidth_bytes_per_s": bandwidth,
            "hbm_capacity_bytes": capacity,
        }
        for chip, (tdp, area, peak, bandwidth, capacity) in zip(chips, figures, strict=True)
    ]
    return _table("Architectures", rows)


@speaks_python
def workloads() -> Table[Row]:
    """List the models that have a name: parameters, layers, sequence length, and their usual global batch.

    Raises InputError where another package brings a model that cannot be read.
    """
    from phaze.workload.workload_library import list_workloads

    rows = [
        {
            "name": model.name,
            "family": model.family,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters,
            "layers": model.layers,
            "sequence_length": model.sequence_length,
            "global_batch": model.global_batch,
        }
        for model in list_workloads()
    ]
    return _table("Workloads", rows)


@speaks_python
def networks() -> Table[Row]:
    """List the networks that have a name. Raises InputError where another package brings one that cannot be read."""
    from phaze.hardware.catalogue import Catalogue, registry
    from phaze.hardware.cluster_network import load_network

    rows = [
        {
            "name": network.name,
            "tiers": len(network.tiers),
            "scale_up_devices": network.scale_up_devices,
            "scale_up_bandwidth_bytes_per_s": network.scale_up_bandwidth_bytes_per_s,
            "scale_up_latency_s": network.scale_up_latency_s,
            "scale_out_bandwidth_bytes_per_s": network.scale_out_bandwidth_bytes_per_s,
            "scale_out_latency_s": network.scale_out_latency_s,
        }
        for network in map(load_network, registry(Catalogue.NETWORK).all().values())
    ]
    return _table("Networks", rows)


@speaks_python
def spaces() -> Table[Row]:
    """List the design spaces that have a name, with how many architectures each holds.

    Raises InputError where another package brings one that cannot be read.
    """
    from phaze.hardware.catalogue import Catalogue, registry
    from phaze.hardware.spaces.space_file import load_space

    found = map(load_space, registry(Catalogue.SPACE).all().values())
    rows = [{"name": s.name, "architectures": s.size, "description": s.description} for s in found]
    return _table("Design spaces", rows)


@speaks_python
def frameworks() -> Table[Row]:
    """List what training software costs and hides. Raises InputError where another package brings what is wrong."""
    from phaze.hardware.catalogue import Catalogue, registry
    from phaze.parallel.framework import load_framework

    rows = [
        {
            "name": framework.name,
            "attention": framework.attention.value,
            "stretch": framework.stretch,
            "dispatch_s": framework.dispatch_s,
            "tensor_overlap": framework.tensor_overlap.value,
        }
        for framework in map(load_framework, registry(Catalogue.FRAMEWORK).all().values())
    ]
    return _table("Frameworks", rows)


@speaks_python
def plans() -> Table[Row]:
    """List the spaces of training plans that have a name; `phaze.plan` finds the best plan in one.

    Raises InputError where another package brings one that cannot be read.
    """
    from phaze.hardware.catalogue import Catalogue, registry
    from phaze.parallel.plan_choices import load_plans

    rows = [
        {
            "name": space.name,
            "ragged": "yes" if space.ragged else "no",
            "stages": space.stages.value if space.stages else "any",
            "schedules": "all" if space.schedules is None else ", ".join(space.schedules),
            "zero": "all" if space.zero is None else ", ".join(str(int(zero)) for zero in space.zero),
        }
        for space in map(load_plans, registry(Catalogue.PLAN_SPACE).all().values())
    ]
    return _table("Spaces of plans", rows)


@speaks_python
def solve_schedule(
    instance: str | Path | Mapping[str, object], method: str = "exact", time_limit: Quantity = "60s"
) -> ScheduleResult:
    """Schedule the operators of one layer on tensor and vector cores, as `dse solve schedule` does.

    `instance`: a JSON file, or what it holds. `method`: exact, ilp or critical-path. The result has its status, the
    makespan and its lower bound in seconds, and when each operator runs on which cores.

    Raises InputError, which tells the path in the instance that is wrong.

    Example:
        >>> import phaze
        >>> operators = [{"id": "a", "units": ["TC"], "latency_s": 2.0}, {"id": "b", "units": ["VC"], "latency_s": 1.0}]
        >>> layer = {"format": "dse-schedule/2", "units": {"TC": 1, "VC": 1}, "ops": operators, "edges": [["a", "b"]]}
        >>> phaze.solve_schedule(layer).makespan_s
        3.0
    """
    from phaze.inputs.instances.instance_files import schedule_problem
    from phaze.inputs.named_choices import choose
    from phaze.quantity import parse_time
    from phaze.solvers.scheduling import Method, schedule

    chosen, limit_s = choose(Method, method, "--method"), parse_time(time_limit, "--time-limit")
    return schedule(schedule_problem(_source(instance)), chosen, limit_s)


@speaks_python
def solve_placement(
    instance: str | Path | Mapping[str, object], compat: str | None = None
) -> PlacementResult | GeneralResult:
    """Split layers into pipeline stages, and choose their degrees, as `dse solve placement` does.

    `instance`: a JSON file, or what it holds; its `format` tells which problem it is. `compat`: phaze for PHAZE's rules
    instead of the instance's own.

    Raises InputError, which tells the path in the instance that is wrong.
    """
    from phaze.inputs.instances.instance_files import Compat, placed
    from phaze.inputs.named_choices import choose

    return placed(_source(instance), None if compat is None else choose(Compat, compat, "--compat"))


@speaks_python
def solve_fleet(instance: str | Path | Mapping[str, object], within: Quantity | None = None) -> Composition:
    """Choose which devices to rent to serve given requests within a budget, as `dse solve fleet` does.

    `instance`: a JSON file, or what it holds. `within`: the cheapest fleet that serves all in this time, instead of the
    fastest within the budget. The result has seconds and their lower bound, the price in USD per hour, replicas of each
    configuration, and each one's shares of the workloads' requests.

    Raises InputError, which tells the path in the instance that is wrong, and InfeasibleError with what is missing.
    """
    from phaze.inputs.instances.instance_files import rented
    from phaze.quantity import parse_time

    return rented(_source(instance), None if within is None else parse_time(within, "--within"))[2]


@speaks_python
def solve_layers(instance: str | Path | Mapping[str, object], memory: Quantity | None = None) -> LayerResult:
    """Choose a strategy for each layer, the least time within memory, as `dse solve layers` does.

    `instance`: a JSON file, or what it holds. `memory`: what all layers may hold, instead of the instance's own limit.
    The result has its status, seconds and their lower bound, bytes held, and the number of each layer's strategy.

    Raises InputError, which tells the path in the instance that is wrong, and InfeasibleError with the least memory.
    """
    from phaze.inputs.instances.instance_files import chosen_layers
    from phaze.quantity import parse_size

    return chosen_layers(_source(instance), None if memory is None else parse_size(memory, "--memory"))[1]


@speaks_python
def solve_instances(instance: str | Path | Mapping[str, object]) -> InstanceSplit:
    """Split a batch among instances of a model on a host's cores, as `dse solve instances` does.

    `instance`: a JSON file, or what it holds. The result has the seconds of the slowest instance, and how many there
    are of each.

    Raises InputError, which tells the path in the instance that is wrong, and InfeasibleError where none run the batch.
    """
    from phaze.inputs.instances.instance_files import split_on_cores

    return split_on_cores(_source(instance))[1]


@speaks_python
def solve_hosts(instance: str | Path | Mapping[str, object]) -> HostShares:
    """Share a host's cores and memory among jobs, as `dse solve hosts` does.

    `instance`: a JSON file, or what it holds. The result has the number of each job's use, and the sum of throughputs
    over those with fair shares.

    Raises InputError, which tells the path in the instance that is wrong, and InfeasibleError with what is missing.
    """
    from phaze.inputs.instances.instance_files import shared_host

    return shared_host(_source(instance))[1]


def _source(instance: str | Path | Mapping[str, object]) -> Path | Mapping[str, Any]:
    return instance if isinstance(instance, Mapping) else Path(instance)


def _table(title: str, rows: Sequence[Row]) -> Table[Row]:
    """Rows as they are listed; what a terminal has no room for is in the columns alone."""
    columns = columns_of(rows)
    return Table(title, rows, columns, tuple(name for name in columns if name != "description"))
