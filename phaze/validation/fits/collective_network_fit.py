"""A user's own collectives: the constants of a network fitted to them, and how well they predict rows kept aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from phaze.arrays import Floats
from phaze.cost.collectives.collective_times import fastest_s, wire_bytes
from phaze.cost.kernels.fitted_constants import GENERIC
from phaze.cost.kernels.law_fitting import fit_link_law
from phaze.cost.kernels.link_constants import LIBRARY, with_laws
from phaze.errors import InputError
from phaze.hardware.cluster_network import Network
from phaze.hardware.network_tiers import LinkLaw, Medium, Tier, Topology
from phaze.validation.fits.staged_collective_fit import StagedRow, fit_stages
from phaze.validation.measured.measurement_columns import Columns, read_columns
from phaze.validation.measured.measurement_schemas import OWN_COLLECTIVES
from phaze.validation.sets.collective_measurements import COLLECTIVES
from phaze.workload.work import Collective

ASIDE = 5
"""Every so many rows one is kept aside."""

_CONSTANTS = ("launch_s", "step_s", "efficiency", "delta", "ramp_s")
_LITTLE = 1e-6  # where a search by factors starts from what is 0 on other chips
_SPREAD = 0.8  # share of a link that the best of a few measurements reaches, until the fit tells


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured collective: `together` of the ranks in a node; payload in bytes, time in s; by what, if known."""

    collective: Collective
    ranks: int
    together: int
    payload_bytes: float
    time_s: float
    algorithm: str = ""


@dataclass(frozen=True, slots=True)
class NetworkFit:
    """A fitted network, and mean absolute errors in percent.

    `before_pct`: of `before` on rows kept aside; `after_pct`: of the fitted constants on the same rows;
    `fitted_pct`: of the fitted ones on the rows they were fitted on.
    """

    network: Network
    rows: int
    aside: int
    before_pct: float
    after_pct: float
    fitted_pct: float
    before: str = "the constants for all chips"


def read_samples(path: Path, system: str | None = None) -> list[Sample]:
    """Rows of a file with collective, ranks, bytes and time_us, and perhaps system and ranks_per_node.

    Raises InputError for a file that cannot be read, holds several systems of which none is chosen, or no rows.
    """
    columns = read_columns(path, OWN_COLLECTIVES)
    if columns.bad:
        raise InputError(f"{path}, {columns.bad[0]}")
    systems = columns["system"] if "system" in columns.text else ("",) * columns.rows
    known = sorted(set(systems))
    if system is None and len(known) > 1:
        raise InputError(f"{path}: holds {len(known)} systems; choose one of {', '.join(map(repr, known))}")
    if system is not None and system not in known:
        raise InputError(f"{path}: no rows of system {system!r} (systems: {', '.join(map(repr, known))})")
    chosen = (system is None or name == system for name in systems)
    samples = [sample for sample, wanted in zip(_samples(columns), chosen, strict=True) if sample and wanted]
    if len(samples) < ASIDE:
        raise InputError(f"{path}: {len(samples)} rows of two or more ranks; {ASIDE} are needed")
    return samples


def _samples(columns: Columns) -> list[Sample | None]:
    """The rows; None where a single rank talks to nobody."""
    ranks, sizes, times_us = (columns.numbers(name) for name in ("ranks", "bytes", "time_us"))
    given = (
        columns.numbers("ranks_per_node")
        if "ranks_per_node" in columns.text
        else np.full(columns.rows, np.nan)
    )
    together = np.where(np.isnan(given), ranks, np.minimum(ranks, given))
    found: list[Sample | None] = []
    by = columns["algorithm"] if "algorithm" in columns.text else ("",) * columns.rows
    for row, name in enumerate(columns["collective"]):
        group = int(ranks[row]), int(together[row])
        sample = Sample(
            COLLECTIVES[name], *group, float(sizes[row]), float(times_us[row]) * 1e-6, by[row].strip()
        )
        found.append(sample if sample.ranks > 1 else None)
    return found


def fit_network(
    name: str, samples: Sequence[Sample], bandwidth_bytes_per_s: float | None = None
) -> NetworkFit:
    """Fit one tier inside nodes and, where rows span several, one between them.

    `bandwidth_bytes_per_s`: of a device inside a node; without it, that too is fitted. Rows whose algorithms are told
    give the constants of GenModel, of one switch. Raises InputError where only some are told, or not those of a switch.
    """
    if any(sample.algorithm for sample in samples):
        return _fitted_to_algorithms(name, samples, bandwidth_bytes_per_s)
    aside, kept = samples[ASIDE - 1 :: ASIDE], [s for i, s in enumerate(samples) if i % ASIDE != ASIDE - 1]
    plain = _plain(name, samples, bandwidth_bytes_per_s)
    network = with_laws(plain, GENERIC)
    before = network
    for position in range(len(network.tiers)):
        rows = [s for s in kept if (s.together < s.ranks) == (position > 0)]
        if rows:
            network = _fitted(network, position, rows, bandwidth_bytes_per_s is not None and position == 0)
    return NetworkFit(
        network,
        len(kept),
        len(aside),
        _error_pct(before, aside),
        _error_pct(network, aside),
        _error_pct(network, kept),
    )


def _fitted_to_algorithms(
    name: str, samples: Sequence[Sample], bandwidth_bytes_per_s: float | None
) -> NetworkFit:
    if not all(sample.algorithm for sample in samples):
        raise InputError("an algorithm is told for some rows only; tell all of them, or none")
    if any(sample.together < sample.ranks for sample in samples):
        raise InputError(
            "rows whose algorithm is told have to be of one switch, so that no ranks_per_node is fewer"
        )
    rows = [StagedRow(s.collective, s.ranks, s.payload_bytes, s.time_s, s.algorithm) for s in samples]
    found = fit_stages(name, rows, bandwidth_bytes_per_s, ASIDE)
    errors = found.plain_pct, found.after_pct, found.fitted_pct
    return NetworkFit(found.network, found.rows, found.aside, *errors, "no memory and no incast")


def _plain(name: str, samples: Sequence[Sample], bandwidth: float | None) -> Network:
    """Switches of the bandwidth that is given or that the fastest rows show, without constants."""
    inside = [s for s in samples if s.together == s.ranks]
    across = [s for s in samples if s.together < s.ranks]
    devices = max(s.together for s in samples)
    source = f"fitted to {len(samples)} measurements"
    tiers = []
    if inside or devices > 1:
        wide = bandwidth or _busiest(inside or across)
        end = devices if across else None
        tiers.append(Tier(devices=end, bandwidth_bytes_per_s=wide, source=source))
    if across:
        wide = max(_busiest([s]) / s.together for s in across)
        tier = Tier(devices=None, topology=Topology.FAT_TREE, medium=Medium.ADAPTER, source=source)
        tiers.append(tier.changed(bandwidth_bytes_per_s=wide))
    return Network(name=name, tiers=tuple(tiers), algorithms=LIBRARY)


def _busiest(samples: Sequence[Sample]) -> float:
    """A bandwidth that would let the fastest sample reach a usual share of it."""
    rates = [float(wire_bytes(s.collective, s.payload_bytes, s.ranks)) / s.time_s for s in samples]
    return max(rates) / _SPREAD


def _fitted(network: Network, position: int, samples: Sequence[Sample], bandwidth_is_given: bool) -> Network:
    """The network with the constants of one tier fitted; an efficiency of a bandwidth not given becomes part of it."""

    def with_law(law: LinkLaw) -> Network:
        tiers = list(network.tiers)
        tiers[position] = tiers[position].changed(law=law)
        return network.model_copy(update={"tiers": tuple(tiers)})

    measured = np.array([s.time_s for s in samples])
    law = network.tiers[position].law
    start = replace(law, **{name: max(getattr(law, name), _LITTLE) for name in _CONSTANTS})
    law = fit_link_law(start, _CONSTANTS, lambda tried: _predicted_s(with_law(tried), samples), measured)
    if bandwidth_is_given:
        return with_law(law)
    tiers, wide = list(network.tiers), network.tiers[position].bandwidth_bytes_per_s or 0.0
    tiers[position] = tiers[position].changed(wide * law.efficiency, law=replace(law, efficiency=1.0))
    return network.model_copy(update={"tiers": tuple(tiers)})


def _predicted_s(network: Network, samples: Sequence[Sample]) -> Floats:
    seconds = np.empty(len(samples))
    groups: dict[tuple[Collective, int, int], list[int]] = {}
    for i, s in enumerate(samples):
        groups.setdefault((s.collective, s.ranks, s.together), []).append(i)
    devices = network.tiers[0].devices or 1
    for (collective, ranks, together), where in groups.items():
        payload = np.array([samples[i].payload_bytes for i in where])
        stride = 1 if together == ranks else devices // together
        seconds[where] = fastest_s(collective, payload, network, 0.0, ranks, stride)
    return seconds


def _error_pct(network: Network, samples: Sequence[Sample]) -> float:
    measured = np.array([s.time_s for s in samples])
    return float(100 * np.mean(np.abs(_predicted_s(network, samples) / measured - 1)))
