"""`dse networks`: the built-in networks, what collectives cost on one, and a network fitted to measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import completion as known
from phaze.cli import options as opt
from phaze.cli.noun import Row, noun_app

_SIZES = "1KiB,8KiB,64KiB,512KiB,4MiB,32MiB,256MiB,2GiB"


def _rows() -> list[Row]:
    from phaze.hardware.network import list_networks, load_network

    return [
        {
            "name": network.name,
            "tiers": len(network.tiers),
            "scale_up_devices": network.scale_up_devices,
            "scale_up_bandwidth_bytes_per_s": network.scale_up_bandwidth_bytes_per_s,
            "scale_up_latency_s": network.scale_up_latency_s,
            "scale_out_bandwidth_bytes_per_s": network.scale_out_bandwidth_bytes_per_s,
            "scale_out_latency_s": network.scale_out_latency_s,
        }
        for network in map(load_network, list_networks())
    ]


def _show(name: str) -> str:
    from phaze.hardware.catalogue import Catalogue, find
    from phaze.hardware.network import load_network
    from phaze.yaml_file import yaml_text

    load_network(path := find(Catalogue.NETWORK, name))
    return yaml_text(path)


app = noun_app("networks", "networks", _rows, _show, known.networks)


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
    from phaze.cli.network_cost import curve
    from phaze.cli.output import print_json, print_rows

    document = curve(network, collective, devices, sizes, arch, constants)
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
    from phaze.cli.network_fit import report

    report(file, out, system, bandwidth, json=json)
