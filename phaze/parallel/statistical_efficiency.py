"""Statistical efficiency of a batch: progress that training makes per sample, by the gradient noise scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

from phaze.errors import InputError

MOST_NOISE = 1e12
"""Samples: beyond it no batch that anybody can run loses anything."""


@dataclass(frozen=True)
class NoiseScale:
    """Gradient noise scale of a training: variance of gradients over the squared norm of their mean, in samples.

    Sources: McCandlish et al., arXiv 1812.06162; Pollux, arXiv 2008.12260, equation 5. Raises InputError where it is
    not greater than zero and at most 1e12.
    """

    samples: float

    def __post_init__(self) -> None:
        """Hold it to its range."""
        if not 0 < self.samples <= MOST_NOISE:
            raise InputError(
                f"a gradient noise scale is more than 0 and at most {MOST_NOISE:g} samples, not {self.samples:g}"
            )

    def efficiency(self, batch: int, initial_batch: float = 0.0) -> float:
        """Progress per sample in batches of `batch`, over that in batches of `initial_batch`.

        (noise + initial) / (noise + batch): Pollux's efficiency. Of no initial batch over that of the smallest ones.
        """
        return (self.samples + initial_batch) / (self.samples + batch)


def of_training(noise_scales: Sequence[float], initial_batch: float) -> NoiseScale:
    """The one noise scale that tells the samples of a whole training, of those in equal steps of its progress.

    Progress is counted in samples at `initial_batch`, so that batches of B take mean((noise + B) / (noise + initial))
    as many: the harmonic mean of noise + initial, less initial, has the same for every B. Raises InputError.
    """
    if not noise_scales:
        raise InputError("a training without noise scales has none")
    mean = fsum(1 / (one + initial_batch) for one in noise_scales) / len(noise_scales)
    return NoiseScale(1 / mean - initial_batch if mean else inf)


@dataclass(frozen=True)
class BatchChoice:
    """Batches that may be chosen for an iteration, and the noise scale by which they are held against one another.

    `batches`: ascending; none: that of the question alone.
    """

    noise: NoiseScale
    batches: tuple[int, ...] = ()


def doublings(least: int, most: int) -> tuple[int, ...]:
    """The least batch and its doublings up to the most."""
    found = [least]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return tuple(found)
