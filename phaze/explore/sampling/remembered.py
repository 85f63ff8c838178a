"""Figures of candidates that some sweep has evaluated before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from phaze.digest import digest
from phaze.explore.means import Forgetful, Store
from phaze.explore.sampling.assessor import STATES, Assessor, Row

Assess = Callable[[Sequence[int]], Iterable[Row]]


@dataclass
class Remembered:
    """What is known of an assessor's candidates, under the digest of their hardware and of the task.

    Those in which a workload does not fit are not kept: they cost nothing.
    """

    assessor: Assessor
    store: Store

    def rows(self, numbers: Sequence[int], assess: Assess) -> Iterator[Row]:
        """Figures of some candidates, in the order asked for; `assess` tells those that are not known."""
        if not numbers or isinstance(self.store, Forgetful):
            yield from assess(numbers)
            return
        keys = self._keys(numbers)
        known = {key: row for key, data in self.store.get(keys).items() if (row := _read(data))}
        left = [number for number, key in zip(numbers, keys, strict=True) if key not in known]
        found = iter(assess(left)) if left else iter(())
        for key in keys:
            if key in known:
                yield known[key]
                continue
            row = next(found)
            if "throughput_samples_per_s" in row:
                self.store.put({key: json.dumps(row).encode()})
            yield row

    def _keys(self, numbers: Sequence[int]) -> list[str]:
        columns = self.assessor.candidates.table(np.array(numbers, dtype=np.int64)).columns
        hardware = [{name: column[i] for name, column in columns.items()} for i in range(len(numbers))]
        return [digest("assess", self._task, float(STATES), fields) for fields in hardware]

    @cached_property
    def _task(self) -> str:
        return self.assessor.content


def _read(data: bytes) -> Row | None:
    """A row that was kept; None where it is none."""
    try:
        return cast("Row", json.loads(data))
    except ValueError:
        return None
