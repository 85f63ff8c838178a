"""`dse networks`: the built-in networks, what collectives cost on one, and a network fitted to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli import shell_completion as known
from phaze.cli.catalogue.noun_commands import Row, noun_app


def report_fit(
    file: Path, out: Path | None, system: str | None, bandwidth: str | None, *, json: bool
) -> None:
    """Fit, write or print the network file, and tell the errors. Raises InputError."""
    from phaze.api.network_verbs import NetworkFitted, fit_sentence, network_fit
    from phaze.cli.catalogue.noun_commands import write_new
    from phaze.cli.console_output import print_json, say

    name = (out or file).stem
    found = network_fit(file, name, system, bandwidth)
    text = NetworkFitted(name, found).text
    if out is not None:
        write_new(str(out), lambda _: text)
    if json:
        errors = {
            "rows_fitted": found.rows,
            "rows_aside": found.aside,
            "before_pct": found.before_pct,
            "after_pct": found.after_pct,
            "fitted_pct": found.fitted_pct,
        }
        print_json({"network": name, "file": None if out is None else str(out), **errors})
        return
    say(fit_sentence(found), quiet=False)
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


app = noun_app(
    *("networks", "networks", _rows, _show, known.networks),
    note="no bandwidth inside a scale-up domain: that of the chip's own links",
)


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


Network = Annotated[
    str, typer.Argument(help="Name or path.", metavar="[NETWORK]", autocompletion=known.networks)
]
Collective = Annotated[
    str,
    typer.Option(
        help="all_reduce, reduce_scatter, all_gather, all_to_all or send_recv.",
        autocompletion=known.one_of("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv"),
    ),
]
Devices = Annotated[int, typer.Option(min=2, help="Devices of the group, neighbours.")]
Sizes = Annotated[str, typer.Option(help="Buffers of one device as nccl-tests counts them, SIZE,SIZE,...")]
Arch = Annotated[
    str | None,
    typer.Option(
        help="Chip whose links a network without bandwidth of its own takes.", autocompletion=known.archs
    ),
]
Constants = Annotated[
    str | None,
    typer.Option(
        help="Fitted constants for tiers that have none: generic, or a family such as ampere or hopper."
    ),
]
"""What `cost` and `choose` are both asked."""


@app.command()
def cost(
    network: Network = "default",
    collective: Collective = "all_reduce",
    devices: Devices = 8,
    sizes: Sizes = _SIZES,
    arch: Arch = None,
    constants: Constants = None,
    json: opt.Json = False,
) -> None:
    """Print time, bus bandwidth and algorithm of a collective per size.

    Examples:
        dse networks cost hgx-h100 --collective all_reduce --devices 16 --constants hopper
        dse networks cost default --sizes 1MiB,1GiB --arch h100 --json

    See also: dse networks choose; dse networks fit.
    """

    from phaze.api.network_verbs import collective_costs
    from phaze.cli.console_output import print_json, print_rows
    from phaze.inputs.architecture_names import find_architecture

    chip = None if arch is None else find_architecture(arch)
    document = collective_costs(network, collective, devices, sizes.split(","), chip, constants)
    if json:
        print_json(document)
    else:
        print_rows([{k: v for k, v in row.items() if k != "algorithms_s"} for row in document["rows"]])


@app.command()
def choose(
    network: Network = "default",
    collective: Collective = "all_reduce",
    devices: Devices = 8,
    sizes: Sizes = _SIZES,
    arch: Arch = None,
    constants: Constants = None,
    json: opt.Json = False,
) -> None:
    """Print the best named algorithm of a collective per size, and the best in stages made for the network.

    Examples:
        dse networks choose hgx-h100 --devices 16 --constants hopper
        dse networks choose mynetwork.yaml --collective reduce_scatter --devices 64 --json

    See also: dse networks cost for every named algorithm; dse networks fit for constants.
    """
    from phaze.api.network_verbs import collective_choices
    from phaze.cli.console_output import print_json, print_rows
    from phaze.inputs.architecture_names import find_architecture

    chip = None if arch is None else find_architecture(arch)
    document = collective_choices(network, collective, devices, sizes.split(","), chip, constants)
    if json:
        print_json(document)
    else:
        print_rows(document["rows"])


@app.command()
def fit(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV: collective, ranks, bytes, time_us; perhaps ranks_per_node, system, algorithm.",
            metavar="FILE",
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
