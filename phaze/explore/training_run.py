"""A whole training run: how long it takes, what it draws and what that costs."""

from __future__ import annotations

from phaze.explore.document import Design
from phaze.explore.request import Task, TrainingLength
from phaze.explore.training_report import TrainingRun
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.price import electricity_usd, price_usd, prices

YEAR_S = 365.25 * 86400.0
LIFETIME_S = 5 * YEAR_S  # straight-line write-off of accelerators; large operators book four to six years


def training_run(length: TrainingLength, task: Task, design: Design) -> TrainingRun:
    """The run on a design that was evaluated for the task."""
    result = design.workloads[task.workload.name]
    samples = length.samples_of(task)
    duration_s = samples / result.throughput_samples_per_s
    energy_j = samples / result.global_batch * result.energy_per_iteration_j
    chip_usd = float(price_usd(to_table([Architecture(name=design.id, fields=design.architecture)]))[0])
    p = prices()
    overhead = length.power_usage_effectiveness or p["power_usage_effectiveness"]
    usd_per_kwh = p["electricity_usd_per_kwh"] if length.usd_per_kwh is None else length.usd_per_kwh
    electricity = float(electricity_usd(energy_j, usd_per_kwh, overhead))
    chips = chip_usd * result.devices * duration_s / LIFETIME_S
    sequence = task.workload.sequence_length
    return TrainingRun(
        samples=samples,
        tokens=None if sequence is None else samples * sequence,
        duration_s=duration_s,
        energy_j=energy_j,
        facility_energy_j=energy_j * overhead,
        electricity_usd=electricity,
        chips_usd=chips,
        total_usd=electricity + chips,
        chip_usd=chip_usd,
        usd_per_kwh=usd_per_kwh,
        power_usage_effectiveness=overhead,
        lifetime_s=LIFETIME_S,
    )
