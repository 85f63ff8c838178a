"""Your own measurements: `phaze.measure_template`, `calibrate`, `measure_serving`, `networks_fit`; `networks_cost`; and
what they come back with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.at_hand import architecture_at_hand
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
    from phaze.hardware.cluster_network import Network
    from phaze.quantity import Quantity
    from phaze.validation.fits.collective_network_fit import NetworkFit
    from phaze.validation.fits.kernel_calibration import FittedLaw
    from phaze.validation.measured.measured_cases import Row as Measured
    from phaze.validation.measured.own_serving import ServingFit

Row = dict[str, Any]
SIZES = "1KiB,8KiB,64KiB,512KiB,4MiB,32MiB,256MiB,2GiB"
_CHOICES = ("size_bytes", "algorithm", "time_s", "stages", "synthesized_s", "gain")
_COSTS = ("size_bytes", "time_s", "bus_bandwidth_bytes_per_s", "algorithm")


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
        return _written(path, self.constants.text())

    def to_dataframe(self) -> pd.DataFrame:
        """The laws as a pandas data frame."""
        return self.laws.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        yield from self.laws._blocks()


@dataclass(frozen=True, repr=False)
class NetworkFitted(Shown):
    """A network whose constants were fitted to measured collectives; `fit` holds it with its mean errors in percent."""

    name: str
    fit: NetworkFit

    @property
    def network(self) -> Network:
        """The network, as other functions take it."""
        return self.fit.network

    @property
    def text(self) -> str:
        """The network as a YAML file."""
        from phaze.hardware.cluster_network import network_yaml

        return network_yaml(self.name, self.network.tiers, self.network.algorithms)

    def save(self, path: str | Path) -> Path:
        """Write the network file. Raises InputError where nobody can."""
        return _written(path, self.text)

    def _blocks(self) -> Iterator[RenderableType]:
        yield fit_sentence(self.fit)


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
    return Calibrated(*calibrated(Path(data), _chip(arch), progress or (lambda _: None)))


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
    return MeasuredServing(served_fit(Path(file), _chip(arch), network, rung))


@speaks_python
def networks_cost(
    network: object = "default",
    *,
    collective: str = "all_reduce",
    devices: int = 8,
    sizes: str | Sequence[Quantity] = SIZES,
    arch: object = None,
    constants: str | None = None,
) -> Table[Row]:
    """Time, bus bandwidth and algorithm of a collective per size, as `dse networks cost` prints them.

    `network`: by name, file or at hand. `collective`: all_reduce, reduce_scatter, all_gather, all_to_all or send_recv,
    among `devices` neighbours. `sizes`: buffers of one device as nccl-tests counts them. `arch`: the chip whose links a
    network without bandwidth of its own takes. `constants`: fitted ones for tiers that have none, generic or a family
    such as ampere or hopper. A row also has the seconds of every algorithm.

    Raises InputError where a name, a size or the number of devices is not valid.

    Example:
        >>> import phaze
        >>> row = phaze.networks_cost("hgx-h100", devices=8, sizes=["1GiB"], constants="hopper")[0]
        >>> 1e-3 < row["time_s"] < 1e-2
        True
    """
    each = sizes.split(",") if isinstance(sizes, str) else sizes
    chip = None if arch is None else _chip(arch)
    told = collective_costs(network, collective, devices, each, chip, constants)
    return Table(f"{told['collective']} on {told['network']}", told["rows"], columns_of(told["rows"]), _COSTS)


@speaks_python
def networks_choose(
    network: object = "default",
    *,
    collective: str = "all_reduce",
    devices: int = 8,
    sizes: str | Sequence[Quantity] = SIZES,
    arch: object = None,
    constants: str | None = None,
) -> Table[Row]:
    """The best named algorithm of a collective for each size, beside the best in stages made for the network.

    Arguments as of `phaze.networks_cost`. `stages`: devices of each stage, in the order of the reduction.

    Raises InputError where an argument is not valid, or the collective has no stages on the network.

    Example:
        >>> import phaze
        >>> phaze.networks_choose("hgx-h100", devices=16, sizes=["1KiB"])[0]["stages"]
        '16 over 2 tiers'
    """
    each = sizes.split(",") if isinstance(sizes, str) else sizes
    chip = None if arch is None else _chip(arch)
    told = collective_choices(network, collective, devices, each, chip, constants)
    return Table(
        f"{told['collective']} on {told['network']}", told["rows"], columns_of(told["rows"]), _CHOICES
    )


@speaks_python
def networks_fit(
    file: str | Path, *, system: str | None = None, bandwidth: Quantity | None = None, name: str | None = None
) -> NetworkFitted:
    """Fit a network's constants to measured collectives, as `dse networks fit` does; every fifth row is kept aside.

    `file`: a table as `phaze.measure_template("collective")` has it. `system`: which system of the file. `bandwidth`:
    of a device inside a node (default: fitted). `name`: of the network (default: of the file).

    Raises InputError where the file cannot be read, holds several systems of which none is chosen, or too few rows.

    Example:
        >>> import phaze, pathlib, tempfile
        >>> table = pathlib.Path(tempfile.mkdtemp()) / "mine.csv"
        >>> rows = [f"all_reduce,8,{size},{20 + size / 1e5}" for size in (1e4, 1e5, 1e6, 1e7, 1e8, 1e9)]
        >>> _ = table.write_text("\\n".join(["collective,ranks,bytes,time_us", *rows]))
        >>> phaze.networks_fit(table, bandwidth="450GB/s").network.name
        'mine'
    """
    stem = Path(file).stem if name is None else name
    return NetworkFitted(stem, network_fit(Path(file), stem, system, bandwidth))


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

    kind, links = choose(Fidelity, rung, "--rung"), _links(network)
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


def collective_costs(
    named: object,
    collective: str,
    devices: int,
    sizes: Sequence[Quantity],
    chip: Architecture | None,
    constants: str | None,
) -> dict[str, Any]:
    """Time, bus bandwidth and algorithm per size, fastest first among algorithms. Raises InputError."""
    import numpy as np

    from phaze.cost.collective_times import algorithms_s, wire_bytes
    from phaze.cost.kernels.link_constants import with_laws
    from phaze.inputs.named_choices import choose
    from phaze.quantity import parse_size
    from phaze.workload.work import Collective

    kind, network = choose(Collective, collective, "--collective"), _links(named)
    payload = np.array([parse_size(one.strip() if isinstance(one, str) else one, "--sizes") for one in sizes])
    if devices < 2:
        raise InputError(f"--devices is {devices}; a collective is among 2 or more")
    links = _link_bandwidth(network, chip)
    if constants is not None:
        network = with_laws(network, _known_family(constants))
    times = algorithms_s(kind, payload, network, links, devices)
    if not times:
        raise InputError(f"network {network.name}: no algorithm for {collective} among {devices} devices")
    rows = []
    for i, size in enumerate(payload.tolist()):
        seconds = dict(sorted(((str(a), float(t[i])) for a, t in times.items()), key=lambda pair: pair[1]))
        algorithm, least = next(iter(seconds.items()))
        rows.append(
            {
                "size_bytes": size,
                "time_s": least,
                "bus_bandwidth_bytes_per_s": float(wire_bytes(kind, size, devices)) / least,
                "algorithm": algorithm,
                "algorithms_s": seconds,
            }
        )
    return {"network": network.name, "collective": kind.value, "devices": devices, "rows": rows}


def collective_choices(
    named: object,
    collective: str,
    devices: int,
    sizes: Sequence[Quantity],
    chip: Architecture | None,
    constants: str | None,
) -> dict[str, Any]:
    """The fastest algorithm of the library per size, and the fastest of all ways in stages. Raises InputError."""
    import numpy as np

    from phaze.cost.collective_times import ways
    from phaze.cost.kernels.link_constants import with_laws
    from phaze.hardware.network_tiers import NAMED
    from phaze.inputs.named_choices import choose
    from phaze.workload.work import Collective

    network = _links(named)
    if constants is not None:
        network = with_laws(network, _known_family(constants))
    network = network.model_copy(update={"algorithms": tuple(a for a in network.algorithms if a in NAMED)})
    told = collective_costs(network, collective, devices, sizes, chip, None)
    kind = choose(Collective, collective, "--collective")
    found = ways(kind, network, _link_bandwidth(network, chip), devices)
    if not found:
        raise InputError(
            f"network {network.name}: {collective} among {devices} devices has no stages; members of a tier have "
            "to be a whole number, and the collective all_reduce, reduce_scatter or all_gather"
        )
    rows = []
    for row in told["rows"]:
        size = np.asarray(row["size_bytes"])
        best = min(found, key=lambda way: float(way.law.seconds(size)))
        seconds = float(best.law.seconds(size))
        rows.append(
            {
                "size_bytes": row["size_bytes"],
                "algorithm": row["algorithm"],
                "time_s": row["time_s"],
                "stages": best.words,
                "synthesized_s": seconds,
                "gain": row["time_s"] / seconds,
            }
        )
    return told | {"rows": rows}


def _known_family(name: str) -> str:
    """A family that some medium has constants of. Raises InputError."""
    from phaze.cost.kernels.fitted_constants import fitted_constants
    from phaze.cost.kernels.link_constants import law_file
    from phaze.hardware.network_tiers import LinkLaw, Medium
    from phaze.inputs.named_choices import nearest

    known = sorted({family for medium in Medium for family in fitted_constants(LinkLaw, law_file(medium))})
    if name not in known:
        raise InputError(
            f"--constants {name!r} is not known{nearest(name, known)}; choose one of {', '.join(known)}"
        )
    return name


def _link_bandwidth(network: Network, chip: Architecture | None) -> float:
    """Bandwidth of the chip's own links in bytes/s, where the network has none. Raises InputError."""
    own = network.tiers[0].bandwidth_bytes_per_s
    if own is not None:
        return own
    if chip is None:
        raise InputError(f"network {network.name} takes the links of the chip: give one, --arch a100")
    return float(chip.fields["link_bandwidth_bytes_per_s"])


def network_fit(file: Path, name: str, system: str | None, bandwidth: Quantity | None) -> NetworkFit:
    """A network fitted to a table of collectives. Raises InputError."""
    from phaze.quantity import parse_rate
    from phaze.validation.fits.collective_network_fit import fit_network, read_samples

    wide = None if bandwidth is None else parse_rate(bandwidth, "--bandwidth")
    return fit_network(name, read_samples(file, system), wide)


def fit_sentence(fit: NetworkFit) -> str:
    """How well a fitted network predicts."""
    return (
        f"{fit.rows} rows fitted to {fit.fitted_pct:.1f} %; on {fit.aside} rows kept aside the error is "
        f"{fit.before_pct:.1f} % with {fit.before}, {fit.after_pct:.1f} % with these"
    )


def _links(named: object) -> Network:
    from phaze.hardware.cluster_network import Network, load_network

    return named if isinstance(named, Network) else load_network(str(named))


def _chip(named: object) -> Architecture:
    from phaze.inputs.architecture_names import find_architecture

    return find_architecture(architecture_at_hand(named))


def _written(path: str | Path, text: str) -> Path:
    from phaze.runs.atomic_files import check_writable, write_atomically

    target = Path(path)
    check_writable(target)
    write_atomically(target, text)
    return target


def _finite(value: float) -> float | None:
    """None where prompts leave no pass in which a token could be decoded."""
    return value if math.isfinite(value) else None
