"""Judge what is given: `phaze.evaluate`, `phaze.compare`, `phaze.plan`, and `phaze.validate` the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.judged import Compared, Evaluated, Planned, Validated
from phaze.api.words import options, several, speaks_python

if TYPE_CHECKING:
    from phaze.hardware.architecture import Architecture
    from phaze.hardware.network import Network
    from phaze.inputs.task import Source
    from phaze.placement.strategy.framework import Framework


@speaks_python
def evaluate(
    arch: str | Path | Architecture,
    workload: Source,
    *,
    devices: int = 1024,
    global_batch: int | None = None,
    data_parallel: int | None = None,
    tensor_parallel: int | None = None,
    pipeline_parallel: int | None = None,
    microbatch: int | None = None,
    recompute: str | None = None,
    mode: str = "training",
    context: int | None = None,
    kv_cache: str = "contiguous",
    attention: str = "flash",
    fusion: str = "all",
    bind: Mapping[str, int] | Sequence[str] | None = None,
    network: str | Path | Network = "default",
    rung: str = "analytic",
    calibration: str | Path | None = None,
) -> Evaluated:
    """Evaluate one architecture under its best placement, or one that is given, as `dse evaluate` does.

    Schedules, ZeRO, further kinds of parallelism and what software costs are for `phaze.plan`.

    Raises InputError where an argument is no good, InfeasibleError where the workload does not fit.
    """
    asked = _task(locals())
    from phaze.inputs.files import input_files, with_inputs
    from phaze.inputs.known import evaluated

    files = input_files(asked["workload"], network)
    return Evaluated(with_inputs(evaluated(**asked), files, command=()))


@speaks_python
def compare(
    arch: Sequence[str | Path | Architecture],
    workload: Source,
    *,
    devices: int = 1024,
    global_batch: int | None = None,
    mode: str = "training",
    context: int | None = None,
    kv_cache: str = "contiguous",
    attention: str = "flash",
    fusion: str = "all",
    bind: Mapping[str, int] | Sequence[str] | None = None,
    network: str | Path | Network = "default",
    rung: str = "analytic",
) -> Compared:
    """Compare architectures, each under its own best placement, as `dse compare` does.

    Raises InputError where an argument is no good, InfeasibleError where none of them can run the workload.
    """
    asked = _task(locals())
    from phaze.inputs.known import check_some_can, compared

    rows = compared(several(asked.pop("arch")), **asked)
    check_some_can(rows, asked["workload"])
    return Compared(rows)


@speaks_python
def plan(
    arch: str | Path | Architecture,
    workload: Source,
    *,
    devices: int = 1024,
    global_batch: int | None = None,
    framework: str | Path | Framework = "ideal",
    data_parallel: int | None = None,
    tensor_parallel: int | None = None,
    pipeline_parallel: int | None = None,
    context_parallel: int | None = None,
    expert_parallel: int | None = None,
    sequence_parallel: bool | None = None,
    microbatch: int | None = None,
    schedule: str | None = None,
    chunks: int | None = None,
    recompute: str | None = None,
    zero: int | None = None,
    order: str | None = None,
    attention: str | None = None,
    fusion: str | None = None,
    bind: Mapping[str, int] | Sequence[str] | None = None,
    network: str | Path | Network = "default",
    rung: str = "analytic",
    calibration: str | Path | None = None,
) -> Planned:
    """Find the fastest training plan that fits in memory, with a proof, as `dse plan` does; what is fixed stays fixed.

    Raises InputError where arguments are no good or contradict one another, InfeasibleError where no plan fits.
    """
    asked = _task(locals())
    from phaze.inputs.plan import HELD, held, planned

    choices = held(**{name: asked.pop(name) for name in HELD})
    return Planned(planned(choices=choices, **asked))


@speaks_python
def validate(
    data: str | Path | None = None,
    *,
    sets: str | Sequence[str] = (),
    rung: str = "analytic",
    progress: Callable[[str], None] | None = None,
) -> Validated:
    """Compare the model with measured hardware, as `dse validate` does.

    `data`: the folder of measurements (CSV files), else DSE_DATA in the environment names it. `sets`: some of the
    data sets only. `progress` is told which one is on. An error above its threshold is an answer, see `passed`.

    Raises InputError where there is no such folder, set or rung.
    """
    from phaze.cost.rung import Rung
    from phaze.inputs.choice import choose
    from phaze.inputs.measurements import measurements
    from phaze.validation.validate import validate as judged

    folder = measurements(Path(data) if data is not None else None)
    return Validated(judged(folder, several(sets), choose(Rung, rung, "--rung"), progress))


def _task(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as options; the calibration file as a path."""
    asked = options(given)
    if asked.get("calibration") is not None:
        asked["calibration"] = Path(asked["calibration"])
    return asked
