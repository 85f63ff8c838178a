"""The curve that `dse network cost` prints."""

from __future__ import annotations

from typing import Any


def curve(
    name: str, collective: str, devices: int, sizes: str, arch: str | None, constants: str | None
) -> dict[str, Any]:
    """Time, bus bandwidth and algorithm per size, fastest first among algorithms. Raises InputError."""
    import numpy as np

    from phaze.cost.collective import wire_bytes
    from phaze.cost.exchange import algorithms_s
    from phaze.cost.kernels.links import with_laws
    from phaze.hardware.network import load_network
    from phaze.inputs.named_choices import choose
    from phaze.quantity import parse_size
    from phaze.workload.work import Collective

    kind = choose(Collective, collective, "--collective")
    payload = np.array([parse_size(text.strip(), "--sizes") for text in sizes.split(",")])
    network = load_network(name)
    if constants is not None:
        network = with_laws(network, _family(constants))
    links = _links(network.tiers[0].bandwidth_bytes_per_s, name, arch)
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


def _family(name: str) -> str:
    """A family that some medium has constants of. Raises InputError."""
    from phaze.cost.kernels.fitted import fitted
    from phaze.cost.kernels.links import law_file
    from phaze.errors import InputError
    from phaze.hardware.tiers import LinkLaw, Medium
    from phaze.inputs.named_choices import nearest

    known = sorted({family for medium in Medium for family in fitted(LinkLaw, law_file(medium))})
    if name not in known:
        raise InputError(
            f"--constants {name!r} is not known{nearest(name, known)}; choose one of {', '.join(known)}"
        )
    return name


def _links(own: float | None, network: str, arch: str | None) -> float:
    """Bandwidth of the chip's own links in bytes/s, where the network has none. Raises InputError."""
    from phaze.errors import InputError
    from phaze.inputs.architecture_names import find_architecture

    if own is not None:
        return own
    if arch is None:
        raise InputError(f"network {network} takes the links of the chip: give one, --arch a100")
    return float(find_architecture(arch).fields["link_bandwidth_bytes_per_s"])
