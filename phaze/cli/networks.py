"""`dse networks`: the built-in networks between accelerators."""

from __future__ import annotations

from phaze.cli.noun import Row, noun_app


def _rows() -> list[Row]:
    from phaze.hardware.network import list_networks, load_network

    return [
        {
            "name": network.name,
            "scale_up_devices": network.scale_up_devices,
            "scale_up_bandwidth_bytes_per_s": network.scale_up_bandwidth_bytes_per_s,
            "scale_up_latency_s": network.scale_up_latency_s,
            "scale_out_bandwidth_bytes_per_s": network.scale_out_bandwidth_bytes_per_s,
            "scale_out_latency_s": network.scale_out_latency_s,
        }
        for network in map(load_network, list_networks())
    ]


def _show(name: str) -> str:
    from phaze.cli.output import file_text
    from phaze.hardware.catalogue import Catalogue, find

    return file_text(find(Catalogue.NETWORK, name))


app = noun_app("networks", "networks", _rows, _show)
