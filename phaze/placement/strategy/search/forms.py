"""Linear forms of the times of passes that no iteration of a strategy beats, of the devices that tell most.

A device works for all microbatches; before it, the first one comes through the chunks ahead of its own, and after it,
unless backward is split, gradients of the last one go back through them. What two things do side by side takes as long
as either alone, so that each is a form of its own:

- Exchanges of ZeRO run beside the groups of a pass, one after the other: a pass takes what these compute, or what they
  exchange.
- Exchanges of n equal pieces after the last microbatch hide behind w passes of one microbatch, all but the last piece:
  r seconds of them leave r / n, or r - w (1 - 1 / n) times the passes. A device works for more microbatches than they
  hide behind: no form has coefficients below zero.

Of every strategy those forms are kept that are longest on some architectures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.placement.strategy.search.sheet import Ragged, Sheet, product_of


class Longest(NamedTuple):
    """What is longest on N devices, (N,) each: passes, whether as exchanges; what follows, whether as all of it."""

    passes_s: Floats
    left_s: Floats
    exchanging: Flags
    whole: Flags


@dataclass(frozen=True)
class Side:
    """Passes before or after the loss on N devices, and exchanges that hide behind them after the last microbatch.

    `all_`, `one` (N, J): coefficients of all passes on the way to and of the device, and of one microbatch on the
    device; `all_s`, `one_s` (2, N): seconds of exchanges beside them that nothing hides, and that they take themselves.
    `left_s` (2, N): the last piece of what hides, and all of it; `window` (N,): passes of one microbatch that it hides
    behind.
    """

    all_: Floats
    one: Floats
    all_s: Floats
    one_s: Floats
    left_s: Floats
    window: Floats

    def longest(self, terms: Floats) -> list[Longest]:
        """For each of some devices' terms, (J, P)."""
        every, one = product_of(self.all_, terms), product_of(self.one, terms)
        return [self._longest(*both) for both in zip(every.T, one.T, strict=True)]

    def _longest(self, every_s: Floats, one_s: Floats) -> Longest:
        passes_s = every_s + self.all_s[0]
        exchanging = self.all_s[1] > passes_s
        hiding_s = np.where(exchanging, self.one_s[1], one_s + self.one_s[0])
        last_s, all_s = self.left_s[0], self.left_s[1] - self.window * hiding_s
        return Longest(
            np.maximum(passes_s, self.all_s[1]), np.maximum(last_s, all_s), exchanging, all_s > last_s
        )

    def form(self, at: Rows, longest: Longest, own: Flags) -> tuple[Floats, Floats]:
        """Coefficients (n, J) and seconds (n,) of devices `at`; what follows the passes where it is their `own`."""
        which, whole = longest.exchanging[at].astype(np.intp), own & longest.whole[at]
        window = np.where(whole, self.window[at], 0.0)
        coefficients = (self.all_[at] - window[:, None] * self.one[at]) * (1 - which)[:, None]
        left_s = np.where(own, self.left_s[whole.astype(np.intp), at], 0.0)
        return coefficients, self.all_s[which, at] - window * self.one_s[which, at] + left_s


@dataclass(frozen=True)
class Devices:
    """N devices of strategies under choices: passes before and after the loss, and what does not depend on them.

    `rest` (N, 2): parameters stepped, and seconds; `own`, `other` (N, 2): of what follows the last microbatch on the
    device itself, but for what hides, and at least on the one that exchanges longest.
    """

    sides: tuple[Side, Side]
    rest: Floats
    own: Floats
    other: Floats

    def slowest(self, mine: Ragged, probes: Floats) -> Floats:
        """The longest form of each owner on devices of some terms (3 K + 2, P): (P, owners, 3 K + 2)."""
        forward = self.sides[0].all_.shape[1]
        both = [
            side.longest(some)
            for side, some in zip(self.sides, np.split(probes[:-2], [forward]), strict=True)
        ]
        rest, own, other = (product_of(some, probes[-2:]).T for some in (self.rest, self.own, self.other))
        found = []
        for p, (first, last) in enumerate(zip(*both, strict=True)):
            own_s = own[p] + first.left_s + last.left_s
            total_s = first.passes_s + last.passes_s + rest[p] + np.maximum(own_s, other[p])
            at = mine.largest(total_s[:, None])[:, 0]
            found.append(self._form(at, (first, last), own_s[at] > other[p][at]))
        return np.array(found)

    def _form(self, at: Rows, longest: tuple[Longest, Longest], own: Flags) -> Floats:
        sides = [side.form(at, some, own) for side, some in zip(self.sides, longest, strict=True)]
        last = self.rest[at] + np.where(own[:, None], self.own[at], self.other[at])
        last[:, 1] += sides[0][1] + sides[1][1]
        return np.concatenate([sides[0][0], sides[1][0], last], axis=1)


@dataclass(frozen=True)
class Telling:
    """Telling devices of strategies `row` (n,) under `choice` (n,): `mine`, of which of them each is.

    `device`, `at` (N,): among all devices of strategies, and of places. `again`, `before` (N, K): groups that run again
    there, and ahead of its first chunk.
    """

    sheet: Sheet
    row: Rows
    choice: Rows
    mine: Ragged
    at: Rows
    again: Floats
    before: Floats

    def forms(self, probes: Floats) -> Floats:
        """What times of strategies are at least, (P, n, 3 K + 2): the longest for each of some terms (3 K + 2, P)."""
        sheet, owner = self.sheet, self.mine.owner
        row, choice = self.row[owner], self.choice[owner]
        e = sheet.placed[1][row]
        rest = np.zeros((len(row), 2))
        rest[:, 1] = sheet.waits_s(row, choice, self.at) + sheet.options.layouts.framework.iteration_s
        tie_s, stepped = (some[self.at, choice] for some in sheet.tails[2:4])
        own = np.stack([stepped * sheet.options.layouts.framework.optimizer_stretch, tie_s], axis=1)
        other = np.stack([some[e, choice] for some in sheet.last], axis=1)
        return Devices(self._sides(row, choice), rest, own, other).slowest(self.mine, probes)

    def _sides(self, row: Rows, choice: Rows) -> tuple[Side, Side]:
        sheet, said = self.sheet, self.sheet.options.layouts.framework
        (work, ahead), (reduce_s, gather_s, *_, pieces) = (some[self.at] for some in sheet.work), sheet.tails
        each, turned = sheet.each[row], sheet.turned[row]
        forward_s, backward_s = sheet.exchanging_s(row, choice, self.at)
        pieces = pieces[self.at]

        def side(
            one: Floats, before: Floats, moved_s: Floats, comes: Floats, last_s: Floats, *, hides: bool
        ) -> Side:
            return Side(
                each[:, None] * one + comes[:, None] * before,
                one,
                each * moved_s[0] + comes * moved_s[1],
                moved_s[0],
                np.stack([last_s / pieces if hides else last_s, last_s]),
                hides * sheet.window[row] * (1 - 1 / pieces),
            )

        last_s = reduce_s[self.at, choice], gather_s[self.at, choice]
        both = np.concatenate([self.again, work], axis=1), np.concatenate([self.before, ahead], axis=1)
        return (
            side(work, ahead, forward_s, np.ones_like(each), last_s[1], hides=said.hides_gathers),
            side(*both, backward_s, turned, last_s[0], hides=said.hides_reduction),
        )
