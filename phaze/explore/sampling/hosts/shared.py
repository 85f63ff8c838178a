"""Evaluating the designs of a batch together with other hosts: each claims what it has workers for."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from phaze.errors import PhazeError
from phaze.explore.sampling.assessor import Row
from phaze.explore.sampling.hosts.board import Board, held

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
_LOST = 5  # hosts that may go silent over one design before no other one tries


class DeadlyDesignError(PhazeError):
    """A design that host after host has begun to evaluate and not finished."""


@dataclass
class Shared:
    """Figures of candidates, by whichever host comes first.

    `evaluate`: does it here, `workers` candidates side by side. `stop`: whether to leave. `evaluated` counts what
    this host did, `waited_s` is how long it had nothing to do.
    """

    board: Board
    evaluate: Callable[[Sequence[int]], Iterator[Row]]
    workers: int
    stop: Callable[[], bool]
    evaluated: int = 0
    waited_s: float = 0.0

    def assess(self, numbers: Sequence[int]) -> Iterator[Row]:
        """Figures of some candidates, in the order asked for, as far as `stop` lets it come.

        Raises DeadlyDesignError where several hosts died of one.
        """
        known: dict[int, Row] = {}
        pause_s = FIRST_PAUSE_S
        for number in numbers:
            while number not in known:
                if self.stop():
                    return
                found = self._work_or_look([n for n in numbers if n not in known])
                known |= found
                pause_s = FIRST_PAUSE_S if found else self._wait(pause_s)
            yield known[number]

    def _work_or_look(self, missing: Sequence[int]) -> dict[int, Row]:
        """What others have found by now, and what this host finds if there is something left to claim."""
        view = self.board.look(missing)
        for number, lost in view.free.items():
            if lost >= _LOST:
                raise DeadlyDesignError(
                    f"{lost} hosts began to evaluate candidate {number} and none came back; do they have enough memory?"
                )
        claimed = self.board.claim(self._turned(list(view.free)), self.workers)
        return {**view.answers, **self._evaluated(claimed)}

    def _evaluated(self, claimed: Sequence[int]) -> dict[int, Row]:
        if not claimed:
            return {}
        found: dict[int, Row] = {}
        with held(self.board, claimed):
            for number, row in zip(claimed, self.evaluate(claimed), strict=True):
                self.board.answer(number, row)
                found[number] = json.loads(json.dumps(row))  # as all others read it
                self.evaluated += 1
                if self.stop():
                    break
        return found

    def _turned(self, free: list[int]) -> list[int]:
        """Each host begins somewhere else, so that they seldom want the same."""
        start = zlib.crc32(self.board.host.encode()) % max(1, len(free))
        return free[start:] + free[:start]

    def _wait(self, pause_s: float) -> float:
        """Wait; how long to wait next time."""
        time.sleep(pause_s)
        self.waited_s += pause_s
        return min(2 * pause_s, LONGEST_PAUSE_S)
