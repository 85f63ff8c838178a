"""Networks: `phaze.networks_cost`, `networks_choose`, `networks_fit`, and what they come back with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.at_hand import chip_at_hand, network_at_hand
from phaze.api.measured_verbs import Row
from phaze.api.python_arguments import speaks_python
from phaze.api.result_tables import Table, columns_of
from phaze.api.self_display import Shown
from phaze.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from phaze.hardware.architecture import Architecture
    from phaze.hardware.cluster_network import Network
    from phaze.quantity import Quantity
    from phaze.validation.fits.collective_network_fit import NetworkFit


SIZES = "1KiB,8KiB,64KiB,512KiB,4MiB,32MiB,256MiB,2GiB"

_CHOICES = ("size_bytes", "algorithm", "time_s", "stages", "synthesized_s", "gain")

_COSTS = ("size_bytes", "time_s", "bus_bandwidth_bytes_per_s", "algorithm")


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
        from phaze.runs.atomic_files import write_atomically

        write_atomically(Path(path), self.text)
        return Path(path)

    def _blocks(self) -> Iterator[RenderableType]:
        yield fit_sentence(self.fit)


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
    chip = None if arch is None else chip_at_hand(arch)
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
    chip = None if arch is None else chip_at_hand(arch)
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

    from phaze.cost.collectives.collective_times import algorithms_s, wire_bytes
    from phaze.cost.kernels.link_constants import with_laws
    from phaze.inputs.named_choices import choose
    from phaze.quantity import parse_size
    from phaze.workload.work import Collective

    kind, network = choose(Collective, collective, "--collective"), network_at_hand(named)
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

    from phaze.cost.collectives.collective_times import ways
    from phaze.cost.kernels.link_constants import with_laws
    from phaze.hardware.network_tiers import NAMED
    from phaze.inputs.named_choices import choose
    from phaze.workload.work import Collective

    network = network_at_hand(named)
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
