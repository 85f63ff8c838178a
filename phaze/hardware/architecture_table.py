"""Many architectures at once: one NumPy column per hardware field.

Everything that is computed from hardware (area, power, latency, bounds) takes such a table, so that
one architecture and three hundred thousand go the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]


@dataclass(frozen=True)
class ArchitectureTable:
    """`columns[field][i]` is the value of a hardware field for architecture i, in SI units.

    Field names are those of `fields.yaml`. Derived columns (HBM bandwidth, area, power, ...) are computed by
    the functions of this room and are not stored here.
    """

    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        """Freeze the mapping and check that the columns have one length."""
        lengths = {len(c) for c in self.columns.values()}
        if len(lengths) != 1:
            msg = f"columns of different lengths: {sorted(lengths)}"
            raise ValueError(msg)
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What functions of this room have worked out of it before, by a name of theirs."""
        return {}

    def __len__(self) -> int:
        """Number of architectures."""
        return len(next(iter(self.columns.values())))

    def __getitem__(self, field: str) -> Column:
        """One column."""
        return self.columns[field]

    def take(self, rows: NDArray[np.intp] | Iterable[int]) -> ArchitectureTable:
        """The architectures at the given positions."""
        where = np.asarray(rows)
        return ArchitectureTable({name: _taken(column, where) for name, column in self.columns.items()})

    @staticmethod
    def join(tables: Sequence[ArchitectureTable]) -> ArchitectureTable:
        """All architectures of several tables, in their order."""
        names = tables[0].columns
        return ArchitectureTable({name: _joined([table[name] for table in tables]) for name in names})

    def replace(self, **columns: Column) -> ArchitectureTable:
        """The same architectures with some columns exchanged."""
        return ArchitectureTable({**self.columns, **columns})


def _taken(column: Column, where: NDArray[Any]) -> Column:
    """Some cells of a column; one that repeats a single cell in memory goes on doing so."""
    if column.strides == (0,) and where.dtype != np.bool_ and len(column):
        # A slice costs a hundredth of a view that is made longer.
        return column[: len(where)] if len(where) <= len(column) else np.broadcast_to(column[:1], len(where))
    return np.asarray(column[where])


def _joined(parts: Sequence[Column]) -> Column:
    """Columns one after another; those that all repeat one cell in memory go on doing so."""
    cells = [part[:1] for part in parts if len(part)]
    if cells and all(part.strides == (0,) for part in parts) and len(set(map(bytes, cells))) == 1:
        return np.broadcast_to(cells[0], sum(map(len, parts)))
    return np.concatenate(parts)


def factor(table: ArchitectureTable, fields: Iterable[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Distinct combinations of some fields.

    Returns (`rows`, `inverse`): `rows[u]` is one architecture that shows combination u, `inverse[i]` the
    combination of architecture i. Costs that depend on few fields are computed once per combination.
    """
    code = np.zeros(len(table), dtype=np.int64)
    for name in fields:
        values, digit = np.unique(table[name], return_inverse=True)
        code = code * len(values) + digit
        # Renumber so that the mixed-radix code stays small however many fields take part.
        _, code = np.unique(code, return_inverse=True)
    _, rows, inverse = np.unique(code, return_index=True, return_inverse=True)
    return rows, inverse
