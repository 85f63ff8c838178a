"""Modes of an operator that computes on some cores while it moves bytes over a share of a bandwidth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .operators import Mode
from .problem import ProblemError, check_quantity

SHARES = (1.0, 0.5, 0.25)
"""Parts of the bandwidth that an operator may be given."""


def moldable_modes(
    compute_s: Mapping[int, float],
    transfer_bytes: float,
    bandwidth_bytes_per_s: float,
    shares: Sequence[float] = SHARES,
) -> tuple[Mode, ...]:
    """The modes that no other one beats in cores, latency and draw; fewest cores first, then fastest.

    `compute_s` is the time that the computation takes by number of cores. Computation and transfer overlap: on
    k cores with a share f the latency is max(compute_s[k], transfer_bytes / (f bandwidth_bytes_per_s)), as in
    the roofline model, and the draw is what moves the bytes in just that time.

    Raises ProblemError for a bandwidth of 0, a share outside 0 to 1, or a quantity out of range.
    """
    check_quantity(bandwidth_bytes_per_s, "bandwidth_bytes_per_s")
    check_quantity(transfer_bytes, "transfer_bytes")
    if bandwidth_bytes_per_s == 0:
        raise ProblemError("bandwidth_bytes_per_s", "needs more than 0 to move anything")
    for k, share in enumerate(shares):
        if not 0.0 < share <= 1.0:
            raise ProblemError(f"shares[{k}]", f"needs more than 0 and at most 1, got {share!r}")
    rows = []
    for cores, seconds in compute_s.items():
        check_quantity(seconds, f"compute_s[{cores}]")
        for share in shares:
            rate = share * bandwidth_bytes_per_s
            latency_s = max(seconds, transfer_bytes / rate)
            draw = min(rate, transfer_bytes / latency_s) if latency_s else 0.0
            rows.append((cores, latency_s, draw))
    return tuple(Mode(*row) for row in _unbeaten(rows))


def _unbeaten(rows: Sequence[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Rows (cores, latency, draw) of which no other one is as small in all three; equal ones once."""
    kept: list[tuple[int, float, float]] = []
    for row in sorted(rows):
        if not any(other[1] <= row[1] and other[2] <= row[2] for other in kept):
            kept.append(row)
    return kept
