"""Speculative decoding: tokens that a draft guesses and one pass of the model verifies.

Leviathan et al., "Fast inference from transformers via speculative decoding", ICML 2023: each guess is accepted with
chance a if those before it were, and the pass itself makes one token more, so that a pass of k guesses makes

    E = (1 - a^(k+1)) / (1 - a)    tokens on average (their eq. 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.errors import InputError

MOST_GUESSES = 32
"""Of a pass."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Guesses of a pass, `tokens` of them, each accepted with chance `acceptance` if those before it were.

    `draft`: the model that makes them, one token after the other; None: they are looked up in the text so far
    (n-grams), which takes no time on devices. Raises InputError for values that make no sense.
    """

    tokens: int
    acceptance: float
    draft: str | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if not 1 <= self.tokens <= MOST_GUESSES:
            raise InputError(f"draft tokens are {self.tokens}; they must be 1 to {MOST_GUESSES} a pass")
        if not 0 <= self.acceptance <= 1:
            raise InputError(f"acceptance is {self.acceptance:g}; it must be a chance of 0 to 1")

    @classmethod
    def of_length(cls, tokens: int, length: float, draft: str | None = None) -> Speculation:
        """The speculation whose passes make `length` tokens on average. Raises InputError where none does."""
        if not 1 <= length <= tokens + 1:
            raise InputError(
                f"an acceptance length of {length:g} is not possible: a pass of {tokens} draft tokens makes 1 to "
                f"{tokens + 1}"
            )
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if cls(tokens, middle).tokens_per_pass < length else (low, middle)
        return cls(tokens, high, draft)

    @property
    def chances(self) -> Floats:
        """Chance that a pass makes 1, 2, ... k + 1 tokens, (k + 1,)."""
        a = self.acceptance ** np.arange(self.tokens + 2, dtype=np.float64)
        a[-1] = 0.0  # there is nothing left to accept
        found: Floats = a[:-1] - a[1:]
        return found

    @property
    def tokens_per_pass(self) -> float:
        """Tokens that a pass makes on average, E."""
        return float(self.chances @ np.arange(1, self.tokens + 2))

    def passes(self, tokens: int) -> float:
        """Passes until a sequence has so many tokens more, on average; what the last pass makes beyond is dropped."""
        return float(_passes(self, tokens)[tokens])

    def drawn(self, tokens: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Passes until each of some sequences has so many tokens more, drawn, (N,)."""
        passes, left, chances = np.zeros(len(tokens), dtype=np.int64), tokens.copy(), self.chances
        while (at := np.flatnonzero(left > 0)).size:
            left[at] -= rng.choice(len(chances), size=len(at), p=chances) + 1
            passes[at] += 1
        return passes


@cache
def _passes(speculation: Speculation, most: int) -> Floats:
    """Mean passes for 0 to `most` tokens: M(n) = 1 + sum of p_j M(n - j), and none for none."""
    chances = speculation.chances[::-1]
    found, width = np.zeros(len(chances) + most), len(chances)
    for tokens in range(1, most + 1):
        found[width - 1 + tokens] = 1 + chances @ found[tokens - 1 : tokens - 1 + width]
    return found[width - 1 :]
