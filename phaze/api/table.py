"""A table of results: a sequence of typed rows that becomes a data frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rich.markup import escape
from rich.table import Table as RichTable

from phaze.api.shown import Shown
from phaze.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Item_co = TypeVar("Item_co", covariant=True)
Columns = Mapping[str, "Sequence[Any] | NDArray[Any]"]
_ROWS = 10  # shown


@dataclass(frozen=True, repr=False, eq=False)
class Table(Shown, Sequence[Item_co]):
    """Rows as typed objects, and as `columns` of equal length with units in their names.

    `keys`: the columns that are shown.
    """

    title: str
    rows: Sequence[Item_co]
    columns: Columns
    keys: tuple[str, ...]

    @overload
    def __getitem__(self, at: int) -> Item_co: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Item_co]: ...
    def __getitem__(self, at: int | slice) -> Item_co | Sequence[Item_co]:
        """One row, or some."""
        return self.rows[at]

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def to_dataframe(self) -> pd.DataFrame:
        """All columns as a pandas data frame. Raises InputError where pandas is missing."""
        return dataframe(self.columns)

    def _blocks(self) -> Iterator[RichTable]:
        from phaze.report.design import plain_table
        from phaze.report.format import field, label

        keys = [key for key in self.keys if key in self.columns]
        more = f", {_ROWS} of {len(self):,} rows" if len(self) > _ROWS else ""
        table = plain_table(escape(self.title) + more, *map(label, keys))
        for row in zip(*(self.columns[key][:_ROWS] for key in keys), strict=True):
            values = (value.item() if hasattr(value, "item") else value for value in row)
            told = ("-" if v is None else field(key, v) for key, v in zip(keys, values, strict=True))
            table.add_row(*map(escape, told))
        yield table


@dataclass(frozen=True)
class Records(Sequence[dict[str, Any]]):
    """Rows of columns, each made when it is asked for."""

    columns: Columns

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[dict[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        """One row by its columns' names, or some."""
        if isinstance(at, slice):
            return Records({name: column[at] for name, column in self.columns.items()})
        return {name: column[at] for name, column in self.columns.items()}

    def __len__(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.columns.values()), ()))


def dataframe(columns: Columns) -> pd.DataFrame:
    """Columns as a pandas data frame. Raises InputError with the line that installs pandas where it is missing."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError("pandas is not installed: pip install 'phaze-dse[pandas]'") from error
    return pd.DataFrame(dict(columns))
