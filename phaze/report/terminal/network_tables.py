"""The network of a design: the sentence of the best one, and every network that was looked at, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.markup import escape

from phaze.explore.documents.network_report import NetworkReport
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table


def network_words(report: NetworkReport) -> str:
    """The best network in a sentence."""
    domain = "all devices" if report.scale_up_devices is None else f"{report.scale_up_devices:,} devices"
    dims = " of " + " x ".join(map(str, report.scale_up_dims)) if report.scale_up_dims else ""
    thin = (
        "" if report.oversubscription == 1.0 else f", {report.oversubscription:g} to 1 above the first level"
    )
    return (
        f"Network {report.network}: scale-up domains of {domain} ({report.scale_up_topology}{dims}) over links of "
        f"{fmt.decimal(report.scale_up_bandwidth_bytes_per_s, 'B/s')}, adapters of "
        f"{fmt.decimal(report.scale_out_bandwidth_bytes_per_s, 'B/s')}{thin}. A device's share of it draws "
        f"{fmt.decimal(report.network_power_per_device_w, 'W')} ({fmt.decimal(report.power_per_device_w, 'W')} with "
        f"the device) and costs {fmt.number(report.network_price_per_device_usd)} USD."
    )


def network_blocks(report: NetworkReport, objective: Callable[[float], str]) -> Iterator[RenderableType]:
    """The sentence and the table; `objective` writes a value with its unit."""
    yield escape(network_words(report))
    table = plain_table("Networks (* of the best design)", "network", "architectures", "best", "at most", "")
    table.columns[4].justify = "left"
    for choice in report.choices:
        reached, most = choice.objective_value, choice.upper_bound
        table.add_row(
            escape(choice.network) + (" *" if choice.network == report.network else ""),
            f"{choice.architectures_within:,}",
            "-" if reached is None else escape(objective(reached)),
            "-" if not most else escape(objective(most)),
            choice.status,
        )
    yield table
