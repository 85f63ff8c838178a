"""Recorded requests: when each came, tokens in and out, and how its prompt begins; a CSV file and what it says."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.parallel.serving.load.prefix_cache import PrefixReuse
from phaze.text_file import MIB, read_text, shortened

COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "prefix_hashes")
_NEEDED = ("input_tokens", "output_tokens")
MOST_TOKENS = 10**7
"""Of a prompt or an answer."""
_LARGEST = 256 * MIB
_DIGITS = 12

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RecordedLoad:
    """Requests in their order, (N,) each: tokens in and out, and seconds of arrival, where they are told.

    `blocks`: hashes of the beginning of each prompt, one for every `block_tokens` tokens. `cached`: tokens of each
    prompt whose keys and values are known when it comes, those read from the host's memory (`loaded`) among them.
    """

    prompts: Counts
    outputs: Counts
    arrivals_s: Floats | None
    blocks: tuple[tuple[str, ...], ...]
    block_tokens: int
    cached: Counts
    loaded: Counts

    @property
    def fresh(self) -> Counts:
        """Tokens of each prompt that are computed."""
        found: Counts = self.prompts - self.cached
        return found

    @property
    def later(self) -> Counts:
        """Output tokens after the first."""
        return self.outputs - 1

    @property
    def rate_per_s(self) -> float | None:
        """Mean rate of the arrivals; None where they are not told."""
        if self.arrivals_s is None:
            return None
        return (len(self.prompts) - 1) / float(self.arrivals_s[-1] - self.arrivals_s[0])

    @property
    def mean_context(self) -> float:
        """Tokens in the cache of a decoding sequence, mean over all decode passes: long answers count more."""
        each = self.prompts + (self.later - 1) / 2
        return float(np.average(each, weights=self.later))

    @property
    def context_variance(self) -> float:
        """Variance of the same: between requests, and along each as it grows."""
        each, ages = self.prompts + (self.later - 1) / 2, self.later**2 / 12
        return float(np.average((each - self.mean_context) ** 2 + ages, weights=self.later))

    @property
    def longest_context(self) -> int:
        """Tokens of the longest request before its last decode pass."""
        return int((self.prompts + np.maximum(self.later - 1, 0)).max())

    def with_cache(self, device_tokens: float, host_tokens: float) -> RecordedLoad:
        """The same where a prefix cache has room for so many tokens on devices, and the host for so many beyond."""
        found = [self._held(tokens) for tokens in (device_tokens, device_tokens + host_tokens)]
        return replace(self, cached=found[1], loaded=found[1] - found[0])

    def with_hits(self, share: float, from_host: float) -> RecordedLoad:
        """The same where such shares of every prompt are known on devices, and at the host."""
        cached, loaded = hit_tokens(self.prompts, share, from_host)
        return replace(self, cached=cached, loaded=loaded)

    def _held(self, tokens: float) -> Counts:
        blocks = self.reuse.found(tokens // self.block_tokens if math.isfinite(tokens) else math.inf)
        found: Counts = np.minimum(blocks * self.block_tokens, self.prompts - 1)
        return found

    @cached_property
    def reuse(self) -> PrefixReuse:
        """How far the beginning of each prompt was seen before."""
        return PrefixReuse.of(self.blocks)


def hit_tokens(prompts: Counts, share: float, from_host: float) -> tuple[Counts, Counts]:
    """Tokens of prompts that are known, and those of them that the host holds; one token is computed at least."""
    cached = np.minimum(np.floor((share + from_host) * prompts + 1e-9), prompts - 1).astype(np.int64)
    loaded = np.minimum(np.floor(from_host * prompts + 1e-9), cached).astype(np.int64)
    return cached, loaded


def read_trace(path: Path, block_tokens: int = 512) -> RecordedLoad:
    """The requests of a CSV file with a line of column names. Raises InputError, with the line that is no good.

    `arrival_s`: seconds, ascending (optional); `input_tokens`, `output_tokens`: whole numbers of 1 and more;
    `prefix_hashes`: words separated by blanks, each for `block_tokens` tokens more of the beginning (optional).
    """
    lines = csv.reader(io.StringIO(read_text(path, _LARGEST)), strict=True)
    names, rows = _names(path, next(lines, [])), list[_Row]()
    try:
        for cells in lines:
            if cells:
                where = f"{path}: line {lines.line_num}"
                rows.append(_request(where, _named(where, names, cells), block_tokens, rows[-1:]))
    except csv.Error as error:
        raise InputError(f"{path}: line {lines.line_num}: {error}") from error
    return _checked(path, rows, block_tokens, timed="arrival_s" in names)


_Row = tuple[float, int, int, tuple[str, ...]]


def _names(path: Path, names: list[str]) -> list[str]:
    """The column names. Raises InputError."""
    names = [name.strip().removeprefix("\ufeff") for name in names]
    unknown = next((name for name in names if name not in COLUMNS), None)
    missing = next((name for name in _NEEDED if name not in names), None)
    if unknown is not None or len(set(names)) < len(names):
        what = f"{unknown!r} is not a column of a trace" if unknown is not None else "a column stands twice"
        raise InputError(f"{path}: line 1: {what}; they are {', '.join(COLUMNS)}")
    if missing is not None:
        raise InputError(f"{path}: line 1: no column {missing}; a trace has at least {' and '.join(_NEEDED)}")
    return names


def _named(where: str, names: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) != len(names):
        raise InputError(f"{where}: {len(cells)} cells under {len(names)} columns")
    return dict(zip(names, map(str.strip, cells), strict=True))


def _request(where: str, cells: Mapping[str, str], block: int, before: list[_Row]) -> _Row:
    """One request; `before`: the one above it. Raises InputError."""
    arrival = _seconds(where, cells["arrival_s"]) if "arrival_s" in cells else 0.0
    if before and arrival < before[0][0]:
        raise InputError(f"{where}: arrival_s {arrival:g} is before that of the line above; sort the file")
    prompt, output = (_tokens(where, name, cells[name]) for name in _NEEDED)
    hashes = tuple(cells.get("prefix_hashes", "").split())
    if (len(hashes) - 1) * block >= prompt:
        told = f"{len(hashes)} prefix_hashes of {block} tokens each"
        raise InputError(f"{where}: {told} are more than its {prompt} input tokens")
    return arrival, prompt, output, hashes


def _seconds(where: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise InputError(f"{where}: arrival_s {shortened(text, 40)!r} is not a time of 0 or more in seconds")
    return found


def _tokens(where: str, name: str, text: str) -> int:
    found = int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0
    if not 1 <= found <= MOST_TOKENS:
        asked = f"a whole number of 1 to {MOST_TOKENS:,} tokens"
        raise InputError(f"{where}: {name} {shortened(text, 40)!r} is not {asked}")
    return found


def _checked(path: Path, rows: list[_Row], block_tokens: int, *, timed: bool) -> RecordedLoad:
    if len(rows) < 2:
        raise InputError(f"{path}: {len(rows)} requests; a trace has two at least")
    arrivals, prompts, outputs, blocks = zip(*rows, strict=True)
    if timed and arrivals[-1] == arrivals[0]:
        raise InputError(f"{path}: all requests arrive at once; leave out arrival_s where there is no rate")
    if max(outputs) == 1:
        raise InputError(f"{path}: no request has more than one output token, so that nothing is decoded")
    none = np.zeros(len(rows), dtype=np.int64)
    times = np.array(arrivals, dtype=np.float64) if timed else None
    return RecordedLoad(np.array(prompts), np.array(outputs), times, blocks, block_tokens, none, none)
