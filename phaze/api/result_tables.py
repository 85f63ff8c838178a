"""Tables of results: sequences of typed rows that become a data frame, flat, with units in the names of the columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rich.markup import escape
from rich.table import Table as RichTable

from phaze.api.self_display import Shown
from phaze.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from phaze.explore.documents.plan_document import PlanResult
    from phaze.explore.documents.result_document import Comparison, Design, WorkloadResult


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
        from phaze.report.number_format import field, label
        from phaze.report.terminal.design_tables import plain_table

        keys = [key for key in self.keys if key in self.columns]
        more = f", {_ROWS} of {len(self):,} rows" if len(self) > _ROWS else ""
        table = plain_table(escape(self.title) + more, *map(label, keys))
        for row in zip(*(self.columns[key][:_ROWS] for key in keys), strict=True):
            values = map(_plain, row)
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
        return {name: _plain(column[at]) for name, column in self.columns.items()}

    def __len__(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.columns.values()), ()))


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell of any column
    """A cell as Python has it, not NumPy."""
    return value.item() if hasattr(value, "item") else value


def dataframe(columns: Columns) -> pd.DataFrame:
    """Columns as a pandas data frame. Raises InputError with the line that installs pandas where it is missing."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError("pandas is not installed: pip install '.[pandas]' in a clone of phaze") from error
    return pd.DataFrame(dict(columns))


Row = Mapping[str, Any]


def columns_of(rows: Sequence[Row]) -> Columns:
    """Rows as columns, in the order the names first appear; None where a row has no such value."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def design_rows(designs: Iterable[tuple[str, Design]]) -> Iterator[dict[str, Any]]:
    """A row for every workload of every design, each design by its given name."""
    for name, design in designs:
        for workload, result in design.workloads.items():
            yield {
                "architecture": name,
                "workload": workload,
                "area_mm2": design.area_mm2,
                "tdp_w": design.tdp_w,
                **workload_row(result),
                **design.architecture,
            }


def known_row(known: Comparison) -> dict[str, Any]:
    """A known chip beside the winner."""
    own = known.model_dump(exclude={"result"})
    return own | (workload_row(known.result) if known.result else {})


def plan_row(plan: PlanResult) -> dict[str, Any]:
    """A plan with its figures, where its time goes (`time.`) and its memory (`memory.`)."""
    told = plan.model_dump(mode="json")
    strategy, memory, time = (told.pop(part) for part in ("strategy", "memory", "breakdown"))
    return {**strategy, **told, **_within("time", time), **_within("memory", memory)}


def workload_row(result: WorkloadResult) -> dict[str, Any]:
    """Result of a workload, its degrees, and its time in five parts (`time.`) and by cause (`cause.`)."""
    told = result.model_dump(mode="json", exclude={"memory", "kinds", "host_memory_bytes"})
    placement, time = told.pop("placement"), told.pop("breakdown")
    stages, plan = placement.pop("stages"), placement.pop("plan") or {}
    causes = time.pop("parts") or {}
    if not time["host_s"]:
        del time["host_s"]
    return {
        **told,
        **placement,
        **plan,
        "stages": len(stages),
        **_within("time", time),
        **_within("cause", causes),
    }


def _within(part: str, values: Row) -> dict[str, Any]:
    return {f"{part}.{name}": value for name, value in values.items()}
