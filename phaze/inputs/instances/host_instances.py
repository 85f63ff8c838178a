"""Instances of what shares a host's cores, as `dse solve instances` and `dse solve hosts` read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from phaze.errors import InfeasibleError, InputError, Shortfall
from phaze.yaml_file import checked

if TYPE_CHECKING:
    from phaze.solvers.hosts import HostJob, InstanceProfile

_Count = Annotated[int, Field(ge=1, le=4096)]
_Above = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]


class _Instance(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _Profile(_Instance):
    cores: _Count
    batch: _Count
    latency_s: _Above


class _Split(_Instance):
    cores: Annotated[int, Field(ge=1, le=256)]
    batch: _Count
    profiles: Annotated[tuple[_Profile, ...], Field(min_length=1, max_length=512)]


class _Use(_Instance):
    cores: _Amount
    memory_bytes: _Amount = 0.0
    samples_per_s: _Above


class _Job(_Instance):
    name: str
    uses: Annotated[tuple[_Use, ...], Field(max_length=256)] = ()
    samples_per_s: _Above | None = None
    core_s_per_sample: _Amount | None = None
    cores: Annotated[tuple[_Count, ...], Field(max_length=256)] = ()
    memory_bytes: _Amount = 0.0


class _Host(_Instance):
    cores: _Above
    memory_bytes: _Amount = 0.0
    jobs: Annotated[tuple[_Job, ...], Field(min_length=1, max_length=1000)]


@dataclass(frozen=True)
class SplitInstance:
    """Instances that were measured, the cores there are, and the batch to run."""

    profiles: tuple[InstanceProfile, ...]
    cores: int
    batch: int


@dataclass(frozen=True)
class HostInstance:
    """Jobs and the host that they share."""

    jobs: tuple[HostJob, ...]
    cores: float
    memory_bytes: float


def read_split(data: object) -> SplitInstance:
    """The instances of a file. Raises InputError for what makes no sense."""
    from phaze.solvers.hosts import InstanceProfile

    told = checked(_Split, data, "$")
    if len({(one.cores, one.batch) for one in told.profiles}) < len(told.profiles):
        raise InputError("two profiles have as many cores and samples")
    profiles = (InstanceProfile(one.cores, one.batch, one.latency_s) for one in told.profiles)
    return SplitInstance(tuple(profiles), told.cores, told.batch)


def read_host(data: object) -> HostInstance:
    """The jobs of a file; the first use of each is its fair share. Raises InputError for what makes no sense."""
    told = checked(_Host, data, "$")
    if len({job.name for job in told.jobs}) < len(told.jobs):
        raise InputError("two jobs have one name")
    return HostInstance(tuple(map(_job, told.jobs)), told.cores, told.memory_bytes)


def _job(told: _Job) -> HostJob:
    from phaze.solvers.hosts import HostJob, HostUse

    if told.uses and not (told.cores or told.samples_per_s or told.core_s_per_sample is not None):
        uses = (HostUse(one.cores, one.memory_bytes, one.samples_per_s) for one in told.uses)
        return HostJob(told.name, tuple(uses))
    if told.uses or told.samples_per_s is None or told.core_s_per_sample is None or not told.cores:
        raise InputError(
            f"{told.name} needs either uses (cores, memory_bytes, samples_per_s), or samples_per_s of its accelerators "
            "with core_s_per_sample and the numbers of cores that it may have"
        )
    work = told.samples_per_s, told.core_s_per_sample
    return HostJob.fed_by_cores(told.name, *work, told.cores, told.memory_bytes)


def why_no_split(told: SplitInstance) -> InfeasibleError:
    """That no sum of measured batches is the batch."""
    return InfeasibleError(
        f"no instances that were measured run {told.batch} samples on {told.cores} cores: their batches do not add up "
        "to it, or need more cores"
    )


def why_no_shares(told: HostInstance) -> InfeasibleError:
    """The cores and the memory that fair shares, or leaner uses as fast, take."""
    needs = {"host cores": ("cores", told.cores), "host memory": ("memory_bytes", told.memory_bytes)}
    short = []
    for name, (field, limit) in needs.items():
        least = sum(
            min(getattr(use, field) for use, gain in zip(job.uses, job.gains, strict=True) if gain >= 1)
            for job in told.jobs
        )
        if least > limit:
            unit = "bytes" if field == "memory_bytes" else "cores"
            short.append(Shortfall(name, limit, least, unit, ("a larger host", "fewer jobs")))
    return InfeasibleError(
        "no choice of uses keeps all jobs as fast as their fair shares on this host", tuple(short)
    )
