"""Kinds of operators: those that differ in nothing but their names cost the same, and are costed once.

A recurrent layer repeats a dozen kinds in every step of its sequence, thousands of operators in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.workload.work import Work

_TOLD = attrgetter(*(field.name for field in fields(Work) if field.name != "name"))


@dataclass(frozen=True)
class Kinds:
    """The first operator of each of K kinds, (K,), and the kind of each of O operators, (O,)."""

    first: Rows
    of_operator: Rows

    @classmethod
    def among(cls, works: Sequence[Work]) -> Kinds:
        """Kinds of some operators, in the order of the first of each."""
        numbers: dict[tuple[object, ...], int] = {}
        each = [numbers.setdefault(_TOLD(work), len(numbers)) for work in works]
        of_operator = np.array(each, dtype=np.intp)
        return cls(np.unique(of_operator, return_index=True)[1], of_operator)

    def each(self, rows: Floats) -> list[Floats]:
        """The row (n,) of every operator, of those of the kinds (K, n); nothing is copied."""
        return [rows[kind] for kind in self.of_operator.tolist()]
