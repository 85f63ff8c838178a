"""Judge what is given: `phaze.evaluate`, `phaze.compare`, `phaze.plan`, and `phaze.validate` the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.judged import Compared, Evaluated, Planned, Validated
from phaze.api.words import options, several, speaks_python

if TYPE_CHECKING:
    from phaze.hardware.architecture import Architecture
    from phaze.hardware.network import Network
    from phaze.inputs.task import Source
    from phaze.placement.strategy.choices import Plans
    from phaze.placement.strategy.framework import Framework
    from phaze.runs.documents import Answer


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
    context_parallel: int | None = None,
    expert_parallel: int | None = None,
    sequence_parallel: bool | None = None,
    whole: str | None = None,
    schedule: str | None = None,
    chunks: int | None = None,
    zero: int | None = None,
    order: str | None = None,
    offload: str | None = None,
    plans: str | Path | Plans = "full",
    framework: str | Path | Framework = "ideal",
    mode: str = "training",
    context: int | None = None,
    kv_cache: str = "contiguous",
    attention: str | None = None,
    fusion: str | None = None,
    recipe: str | None = None,
    bind: Mapping[str, int] | Sequence[str] | None = None,
    network: str | Path | Network = "default",
    rung: str = "analytic",
    calibration: str | Path | None = None,
    out: str | Path | None = None,
) -> Evaluated:
    """Evaluate one architecture under its best plan, or one that is given, as `dse evaluate` does.

    The best plan of the space `plans` as a `framework` runs it; what is fixed stays fixed. `out`: keep the answer in
    this folder, here as in `compare` and `plan`.

    Raises InputError where an argument is no good, InfeasibleError where the workload does not fit.
    """
    asked = _task(locals())
    from phaze.inputs.files import recorded
    from phaze.inputs.known import evaluated

    with _kept(asked.pop("out")) as keep:
        document = recorded(evaluated(asked["arch"], asked["workload"], asked), "evaluate", asked)
        keep(document)
    return Evaluated(document)


@speaks_python
def compare(
    arch: Sequence[str | Path | Architecture],
    workload: Source,
    *,
    devices: int = 1024,
    global_batch: int | None = None,
    plans: str | Path | Plans = "full",
    framework: str | Path | Framework = "ideal",
    mode: str = "training",
    context: int | None = None,
    kv_cache: str = "contiguous",
    attention: str | None = None,
    fusion: str | None = None,
    recipe: str | None = None,
    bind: Mapping[str, int] | Sequence[str] | None = None,
    network: str | Path | Network = "default",
    rung: str = "analytic",
    out: str | Path | None = None,
) -> Compared:
    """Compare architectures, each under its own best placement, as `dse compare` does.

    Raises InputError where an argument is no good, InfeasibleError where none of them can run the workload.
    """
    asked = _task(locals())
    from phaze.inputs.files import recorded
    from phaze.inputs.known import check_some_can, compared

    archs = several(asked.pop("arch"))
    with _kept(asked.pop("out")) as keep:
        found = compared(archs, asked["workload"], asked)
        keep(recorded(found.document, "compare", {"arch": archs, **asked}))
    check_some_can(found.rows, asked["workload"])
    return Compared(found.rows)


@speaks_python
def plan(
    arch: str | Path | Architecture,
    workload: Source,
    *,
    devices: int = 1024,
    global_batch: int | None = None,
    framework: str | Path | Framework = "ideal",
    plans: str | Path | Plans = "full",
    data_parallel: int | None = None,
    tensor_parallel: int | None = None,
    pipeline_parallel: int | None = None,
    context_parallel: int | None = None,
    expert_parallel: int | None = None,
    sequence_parallel: bool | None = None,
    whole: str | None = None,
    microbatch: int | None = None,
    schedule: str | None = None,
    chunks: int | None = None,
    recompute: str | None = None,
    zero: int | None = None,
    order: str | None = None,
    offload: str | None = None,
    recipe: str | None = None,
    attention: str | None = None,
    fusion: str | None = None,
    bind: Mapping[str, int] | Sequence[str] | None = None,
    network: str | Path | Network = "default",
    rung: str = "analytic",
    calibration: str | Path | None = None,
    out: str | Path | None = None,
) -> Planned:
    """Find the fastest training plan that fits in memory, with a proof, as `dse plan` does; what is fixed stays fixed.

    Raises InputError where arguments are no good or contradict one another, InfeasibleError where no plan fits.
    """
    asked = _task(locals())
    from phaze.inputs.files import recorded
    from phaze.inputs.plan import HELD, held, planned

    with _kept(asked.pop("out")) as keep:
        choices = held(**{name: asked[name] for name in HELD})
        rest = {name: value for name, value in asked.items() if name not in HELD}
        document = recorded(planned(choices=choices, **rest), "plan", asked)
        keep(document)
    return Planned(document)


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


def _kept(out: str | Path | None) -> AbstractContextManager[Callable[[Answer], None]]:
    """A function that keeps an answer in the folder, if one is named."""
    from phaze.runs.answers import kept

    return kept(None if out is None else Path(out))


def _task(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as options; the calibration file as a path."""
    asked = options(given)
    if asked.get("calibration") is not None:
        asked["calibration"] = Path(asked["calibration"])
    return asked
