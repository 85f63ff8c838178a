"""`dse networks`: the built-in networks, what collectives cost on one, and a network fitted to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from phaze.cli import shared_options as opt
from phaze.cli import shell_completion as known
from phaze.cli.catalogue.noun_commands import Row, noun_app


def cost_curve(
    name: str, collective: str, devices: int, sizes: str, arch: str | None, constants: str | None
) -> dict[str, Any]:
    """Time, bus bandwidth and algorithm per size, fastest first among algorithms. Raises InputError."""
    import numpy as np

    from phaze.cost.collective_times import algorithms_s, wire_bytes
    from phaze.cost.kernels.link_constants import with_laws
    from phaze.hardware.cluster_network import load_network
    from phaze.inputs.named_choices import choose
    from phaze.quantity import parse_size
    from phaze.workload.work import Collective

    kind = choose(Collective, collective, "--collective")
    payload = np.array([parse_size(text.strip(), "--sizes") for text in sizes.split(",")])
    network = load_network(name)
    if constants is not None:
        network = with_laws(network, _known_family(constants))
    links = _chip_link_bandwidth(network.tiers[0].bandwidth_bytes_per_s, name, arch)
    times = algorithms_s(kind, payload, network, links, devices)
    if not times:
        from phaze.errors import InputError

        raise InputError(f"network {name}: no algorithm for {collective} among {devices} devices")
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


def _known_family(name: str) -> str:
    """A family that some medium has constants of. Raises InputError."""
    from phaze.cost.kernels.fitted_constants import fitted_constants
    from phaze.cost.kernels.link_constants import law_file
    from phaze.errors import InputError
    from phaze.hardware.network_tiers import LinkLaw, Medium
    from phaze.inputs.named_choices import nearest

    known = sorted({family for medium in Medium for family in fitted_constants(LinkLaw, law_file(medium))})
    if name not in known:
        raise InputError(
            f"--constants {name!r} is not known{nearest(name, known)}; choose one of {', '.join(known)}"
        )
    return name


def _chip_link_bandwidth(own: float | None, network: str, arch: str | None) -> float:
    """Bandwidth of the chip's own links in bytes/s, where the network has none. Raises InputError."""
    from phaze.errors import InputError
    from phaze.inputs.architecture_names import find_architecture

    if own is not None:
        return own
    if arch is None:
        raise InputError(f"network {network} takes the links of the chip: give one, --arch a100")
    return float(find_architecture(arch).fields["link_bandwidth_bytes_per_s"])


def report_fit(
    file: Path, out: Path | None, system: str | None, bandwidth: str | None, *, json: bool
) -> None:
    """Fit, write or print the network file, and tell the errors. Raises InputError."""
    from phaze.cli.catalogue.noun_commands import write_new
    from phaze.cli.console_output import print_json, say
    from phaze.hardware.cluster_network import network_yaml
    from phaze.quantity import parse_rate
    from phaze.validation.fits.collective_network_fit import fit_network, read_samples

    wide = None if bandwidth is None else parse_rate(bandwidth, "--bandwidth")
    samples = read_samples(file, system)
    name = (out or file).stem
    found = fit_network(name, samples, wide)
    text = network_yaml(name, found.network.tiers, found.network.algorithms)
    if out is not None:
        write_new(str(out), lambda _: text)
    errors = {
        "rows_fitted": found.rows,
        "rows_aside": found.aside,
        "before_pct": found.before_pct,
        "after_pct": found.after_pct,
        "fitted_pct": found.fitted_pct,
    }
    if json:
        print_json({"network": name, "file": None if out is None else str(out), **errors})
        return
    say(
        f"{found.rows} rows fitted to {found.fitted_pct:.1f} %; on {found.aside} rows kept aside the error is "
        f"{found.before_pct:.1f} % with the constants for all chips, {found.after_pct:.1f} % with these",
        quiet=False,
    )
    typer.echo(text if out is None else f"network written to {out}", nl=out is not None)


_SIZES = "1KiB,8KiB,64KiB,512KiB,4MiB,32MiB,256MiB,2GiB"


def _rows() -> Sequence[Row]:
    from phaze.api.catalogue_verbs import networks

    return networks().rows


def _show(name: str) -> str:
    from phaze.hardware.catalogue import Catalogue, find
    from phaze.hardware.cluster_network import load_network
    from phaze.yaml_file import yaml_text

    load_network(path := find(Catalogue.NETWORK, name))
    return yaml_text(path)


app = noun_app("networks", "networks", _rows, _show, known.networks)


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the network, or path of the file.", metavar="NAME")],
    like: Annotated[
        str, typer.Option(help="Built-in network to start from.", autocompletion=known.networks)
    ] = "hgx-h100",
) -> None:
    """Write a network file to start from: a built-in one under another name.

    Examples:
        dse networks new mynetwork --like hgx-a100
        dse networks new folder/mynetwork.yaml

    See also: dse networks cost for what a collective takes on it; dse networks fit.
    """
    import re

    from phaze.cli.catalogue.noun_commands import write_new

    text = _show(like)
    path = write_new(
        name, lambda stem: re.sub(r"^name: .*$", f"name: {stem}", text, count=1, flags=re.MULTILINE)
    )
    typer.echo(f"{path}: change it, then look at it with dse networks cost {path}")


@app.command()
def cost(
    network: Annotated[
        str, typer.Argument(help="Name or path.", metavar="[NETWORK]", autocompletion=known.networks)
    ] = "default",
    collective: Annotated[
        str,
        typer.Option(
            help="all_reduce, reduce_scatter, all_gather, all_to_all or send_recv.",
            autocompletion=known.one_of(
                "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv"
            ),
        ),
    ] = "all_reduce",
    devices: Annotated[int, typer.Option(min=2, help="Devices of the group, neighbours.")] = 8,
    sizes: Annotated[
        str, typer.Option(help="Buffers of one device as nccl-tests counts them, SIZE,SIZE,...")
    ] = _SIZES,
    arch: Annotated[
        str | None,
        typer.Option(
            help="Chip whose links a network without bandwidth of its own takes.", autocompletion=known.archs
        ),
    ] = None,
    constants: Annotated[
        str | None,
        typer.Option(
            help="Fitted constants for tiers that have none: generic, or a family such as ampere or hopper."
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Print time, bus bandwidth and algorithm of a collective per size.

    Examples:
        dse networks cost hgx-h100 --collective all_reduce --devices 16 --constants hopper
        dse networks cost default --sizes 1MiB,1GiB --arch h100 --json

    See also: dse networks fit.
    """

    from phaze.cli.console_output import print_json, print_rows

    document = cost_curve(network, collective, devices, sizes, arch, constants)
    if json:
        print_json(document)
    else:
        print_rows([{k: v for k, v in row.items() if k != "algorithms_s"} for row in document["rows"]])


@app.command()
def fit(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV: collective, ranks, bytes, time_us; perhaps ranks_per_node, system.", metavar="FILE"
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Network file to write (default: print it).")] = None,
    system: Annotated[str | None, typer.Option(help="Which system of the file.")] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="Of a device inside a node, for instance 450GB/s (default: fitted).")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Fit a network's constants to measured collectives; every fifth row is kept aside to tell the error.

    Examples:
        dse networks fit measurements.csv --out mynetwork.yaml
        dse networks fit measurements.csv --bandwidth 450GB/s --json

    See also: dse networks cost.
    """

    report_fit(file, out, system, bandwidth, json=json)
