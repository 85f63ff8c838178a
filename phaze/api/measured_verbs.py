"""Your own measurements: `phaze.measure_template`, `calibrate`, `measure_serving`, and what they come back with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.at_hand import chip_at_hand, network_at_hand
from phaze.api.python_arguments import speaks_python
from phaze.api.result_tables import Table, columns_of
from phaze.api.self_display import Shown
from phaze.errors import InputError
from phaze.inputs.option_reading import as_list

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from phaze.cost.kernels.fitted_constants import CalibrationFile
    from phaze.hardware.architecture import Architecture
    from phaze.quantity import Quantity
    from phaze.validation.fits.kernel_calibration import FittedLaw
    from phaze.validation.measured.measured_cases import Row as Measured
    from phaze.validation.measured.own_serving import ServingFit


Row = dict[str, Any]


@dataclass(frozen=True, repr=False)
class Calibrated(Shown):
    """Constants of the cost model that were fitted to measurements of a chip, and what they are worth."""

    constants: CalibrationFile
    fitted: Sequence[FittedLaw]

    @property
    def laws(self) -> Table[Row]:
        """Each law with its rows, and its mean error in percent on rows kept aside, before and after."""
        rows = law_rows(self.fitted)
        return Table("Errors on rows kept aside", rows, columns_of(rows), tuple(columns_of(rows)))

    def save(self, path: str | Path) -> Path:
        """Write the file that `calibration` of other functions takes. Raises InputError where nobody can."""
        from phaze.runs.atomic_files import write_atomically

        write_atomically(Path(path), self.constants.text())
        return Path(path)

    def to_dataframe(self) -> pd.DataFrame:
        """The laws as a pandas data frame."""
        return self.laws.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        yield from self.laws._blocks()


@dataclass(frozen=True, repr=False)
class MeasuredServing(Shown):
    """Measured times per output token beside the model's; `fit` holds them under every host time that was tried."""

    fit: ServingFit

    @property
    def dispatch_s(self) -> float:
        """Host time per kernel that explains the measurements best; 0 where none does."""
        return self.fit.dispatch_s

    @property
    def before_pct(self) -> float:
        """Mean error in percent without host time."""
        return 100 * self.fit.before

    @property
    def left_out_pct(self) -> float | None:
        """Mean error in percent of rows that were left out of the fit; None below three rows."""
        return None if self.fit.left_out is None else 100 * self.fit.left_out

    @property
    def rows(self) -> Table[Row]:
        """Every row: what was measured, what the model says, and that with the host time; seconds per token."""
        rows = served_rows(self.fit)
        return Table("Time per output token", rows, columns_of(rows), tuple(columns_of(rows)))

    def to_dataframe(self) -> pd.DataFrame:
        """The rows as a pandas data frame."""
        return self.rows.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        yield from self.rows._blocks()
        yield from serving_sentences(self.fit, "dispatch_s = {:.3g} us")


@speaks_python
def measure_template(what: str = "gemm") -> str:
    """A table with documented columns and example rows, to fill in with measurements, as `dse measure template` writes.

    `what`: gemm (products, for `phaze.calibrate`), collective (for `phaze.networks_fit`) or serving (for
    `phaze.measure_serving`).

    Raises InputError for another kind of table.

    Example:
        >>> import phaze
        >>> phaze.measure_template("collective").splitlines()[-1].partition(",")[0]
        'all_gather'
    """
    from phaze.inputs.named_choices import choose
    from phaze.validation.measured.own_measurements import Template, template_text

    return template_text(choose(Template, what, "WHAT"))


@speaks_python
def measure_gpu(
    out: str | Path,
    *,
    parts: str | Sequence[str] = (),
    loop: Quantity = "1.2s",
    time_limit: Quantity = "15min",
    progress: Callable[[str], None] | None = None,
) -> list[Path]:
    """Measure this machine's NVIDIA GPU, as `dse measure gpu` does; the tables written.

    `out`: folder for the tables. `parts`: some of idle, products, kernels, attention, steps and decode only. `loop`:
    time of the loop over which power is read. `time_limit`: nothing is begun after it. `progress` is told each case.

    Raises InputError where there is no such part, no PyTorch with CUDA, no GPU, or nobody can write.
    """
    return gpu_measured(Path(out), as_list(parts), loop, time_limit, progress or (lambda _: None))


@speaks_python
def calibrate(data: str | Path, arch: object, *, progress: Callable[[str], None] | None = None) -> Calibrated:
    """Fit the cost model's constants to measurements of a chip, as `dse calibrate` does.

    `data`: a table of products, or a folder with files as `phaze.validate` reads. `arch`: the chip by name, file or at
    hand. Every fifth row is judged, not fitted. `progress` is told which law is on.

    Raises InputError where a table cannot be read or has too few rows.

    Example:
        >>> import phaze, pathlib, tempfile
        >>> table = pathlib.Path(tempfile.mkdtemp()) / "products.csv"
        >>> rows = [f"bf16,{m},4096,4096,{m / 7}" for m in range(512, 8704, 512)]
        >>> _ = table.write_text("\\n".join(["dtype,m,n,k,latency_us", *rows]))
        >>> phaze.calibrate(table, "a100-80gb").laws[0]["rows_fitted"]
        12
    """
    return Calibrated(*calibrated(Path(data), chip_at_hand(arch), progress or (lambda _: None)))


@speaks_python
def measure_serving(
    file: str | Path, arch: object, *, network: object = "default", rung: str = "analytic"
) -> MeasuredServing:
    """Compare measured times per output token with the model, and find the host time per kernel that explains them, as
    `dse measure serving` does.

    `file`: a table as `phaze.measure_template("serving")` has it. `arch` and `network`: by name, file or at hand.
    `rung`: analytic or calibrated. The host time is what `dispatch` of `phaze.plan_serving` takes.

    Raises InputError where the table cannot be read.
    """
    return MeasuredServing(served_fit(Path(file), chip_at_hand(arch), network, rung))


def gpu_measured(
    out: Path, parts: Sequence[str], loop: Quantity, limit: Quantity, say: Callable[[str], None]
) -> list[Path]:
    """Tables of this machine's GPU. Raises InputError."""
    from phaze.inputs.named_choices import nearest
    from phaze.quantity import parse_time
    from phaze.validation.own.gpu_script import PARTS, machine_here, measure

    for part in parts:
        if part not in PARTS:
            raise InputError(
                f"--part {part!r} is not known{nearest(part, PARTS)}; choose one of {', '.join(PARTS)}"
            )
    loop_s, limit_s = parse_time(loop, "--loop"), parse_time(limit, "--time-limit")
    if not loop_s > 0:
        raise InputError(f"--loop is {loop}; use a time above 0")
    try:
        machine = machine_here("cuda", loop_s)
        out.mkdir(parents=True, exist_ok=True)
        written = measure(machine, out, parts or PARTS, limit_s / 60, say)
    except OSError as error:
        raise InputError(str(error)) from error
    if not written:
        raise InputError(f"{out}: nothing was measured")
    return written


def gpu_script_text() -> str:
    """The script that measures a GPU, which runs without phaze."""
    from phaze.validation.own import gpu_script

    return Path(gpu_script.__file__).read_text(encoding="utf-8")


def calibrated(
    data: Path, chip: Architecture, progress: Callable[[str], None]
) -> tuple[CalibrationFile, Sequence[FittedLaw]]:
    """Constants fitted to a table of products, or to a folder of data sets. Raises InputError."""
    from phaze.validation.fits.kernel_calibration import Calibrator

    return Calibrator(chip, _measured(data, chip, progress)).fit(progress)


def _measured(data: Path, chip: Architecture, progress: Callable[[str], None]) -> tuple[Measured, ...]:
    from phaze.validation.fits.kernel_calibration import rows_of
    from phaze.validation.measured.own_measurements import own_products

    if data.is_dir():
        return rows_of(data / "validation" if (data / "validation").is_dir() else data, chip, progress)
    return own_products(data, chip)


def law_rows(laws: Sequence[FittedLaw]) -> list[Row]:
    """What fitted laws are worth, a row each."""
    return [
        {
            "law": law.file.removesuffix(".yaml"),
            "rows_fitted": law.fitted,
            "rows_judged": law.aside,
            "error_before_pct": law.before_pct,
            "error_after_pct": law.after_pct,
        }
        for law in laws
    ]


def served_fit(file: Path, chip: Architecture, network: object, rung: str) -> ServingFit:
    """A table of served models against the model. Raises InputError."""
    from phaze.cost.fidelity import Fidelity
    from phaze.inputs.named_choices import choose
    from phaze.validation.measured.own_serving import fit_serving, own_served

    kind, links = choose(Fidelity, rung, "--rung"), network_at_hand(network)
    return fit_serving(own_served(file), chip, links, kind)


def served_rows(fit: ServingFit) -> list[Row]:
    """What was measured beside the model, a row each."""
    told = zip(fit.rows, fit.predicted_s[:, 0].tolist(), fit.fitted_s.tolist(), strict=True)
    return [
        {
            "workload": row.workload,
            "tensor_parallel": row.width,
            "concurrency": row.concurrency,
            "measured_s": row.measured_s,
            "model_s": _finite(plain),
            "with_dispatch_s": _finite(fitted),
        }
        for row, plain, fitted in told
    ]


def serving_sentences(fit: ServingFit, dispatch: str) -> Iterator[str]:
    """Mean errors, without and with the host time; `dispatch`: how that is written, from microseconds."""
    yield f"mean error {100 * fit.before:.1f} %"
    if fit.dispatch_s > 0:
        after = f"mean error {100 * (fit.left_out or 0.0):.1f} % on rows that were left out of the fit"
        yield f"with {dispatch.format(1e6 * fit.dispatch_s)}: {after}"
    else:
        yield "no host time per kernel makes it smaller on rows that were left out of the fit"


def _finite(value: float) -> float | None:
    """None where prompts leave no pass in which a token could be decoded."""
    return value if math.isfinite(value) else None
