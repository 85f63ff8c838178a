"""A whole training run on a design that was evaluated: time, money, carbon and energy, by part."""

from __future__ import annotations

from phaze.errors import InputError
from phaze.explore.documents.result_document import Design, TrainingRun
from phaze.explore.request.explore_request import Task, TrainingLength
from phaze.hardware.economics.economic_figures import YEAR_S

MAKING = ("dies", "memory", "packaging", "bonding", "module")
"""Parts of money that are what a package costs to make."""


def training_run(length: TrainingLength, task: Task, design: Design) -> TrainingRun:
    """The run: a sample's parts, for all samples. Raises InputError where a design's dies fit on no wafer."""
    result, e = design.workloads[task.workload.name], task.economics
    cost = result.cost
    if cost is None:
        raise InputError(f"{design.id} has no cost: not one of its dies fits on a wafer")
    samples, sequence = length.samples_of(task), task.workload.sequence_length
    usd, kg, site = (
        {name: samples * part for name, part in parts.items()}
        for parts in (cost.cost_parts_usd, cost.carbon_parts_kg, cost.energy_parts_j)
    )
    return TrainingRun(
        samples=samples,
        tokens=None if sequence is None else samples * sequence,
        duration_s=samples / result.throughput_samples_per_s,
        energy_j=site["accelerators"],
        facility_energy_j=sum(site.values()),
        electricity_usd=usd.get("electricity", 0.0),
        chips_usd=sum(usd.get(name, 0.0) for name in MAKING),
        total_usd=sum(usd.values()),
        chip_usd=cost.chip_usd,
        usd_per_kwh=e["electricity_usd_per_kwh"],
        power_usage_effectiveness=e["power_usage_effectiveness"],
        lifetime_s=e["lifetime_years"] * YEAR_S,
        cost_parts_usd=usd,
        carbon_kg=sum(kg.values()),
        carbon_parts_kg=kg,
        energy_parts_j=site,
        device_usd=cost.device_usd,
    )
