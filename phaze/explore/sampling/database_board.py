"""A board in the study's own database: one table beside Optuna's, which its tools do not look at.

Each operation is one statement, so atomic by itself. Time is the database's: clocks of hosts do not matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    and_,
    cast,
    extract,
    func,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from phaze.errors import InputError
from phaze.explore.sampling.claim_board import LEASE_S, BoardView, host_name
from phaze.explore.sampling.design_assessor import Row
from phaze.explore.sampling.study_storage import patiently

TABLE = Table(
    "phaze_claims",
    MetaData(),
    Column("topic", String(64), primary_key=True),  # digest of all that the answers depend on
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("host", String(300), nullable=False),
    Column("expires_s", Double, nullable=False),  # since 1970, by the database's clock
    Column("claims", Integer, nullable=False),  # that were neither answered nor given up
    Column("figures", Text),  # JSON; empty as long as there is no answer
)
_INSERTS: dict[str, Callable[[Table], Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
_NO_CLAIM_S = 0.0


@dataclass(frozen=True)
class DatabaseBoard:
    """Pieces of one topic. Raises InputError for databases other than PostgreSQL and SQLite."""

    engine: Engine
    topic: str
    lease_s: float = LEASE_S
    host: str = field(default_factory=host_name)

    def __post_init__(self) -> None:
        """Make the table, unless it is there."""
        if self.engine.dialect.name not in _INSERTS:
            raise InputError(
                f"--join takes a PostgreSQL or SQLite database, not one of {self.engine.dialect.name}"
            )
        patiently(lambda: TABLE.create(self.engine, checkfirst=True))

    def look(self, numbers: Sequence[int]) -> BoardView:
        """Answers of some pieces, and which of the others are free to claim."""
        columns = TABLE.c.number, TABLE.c.figures, TABLE.c.claims, (TABLE.c.expires_s < self._now)
        with self.engine.connect() as connection:
            rows = connection.execute(select(*columns).where(self._ours(numbers))).all()
        free = dict.fromkeys(numbers, 0)
        for number, figures, claims, lost in rows:
            if figures is None and lost:
                free[number] = claims
            else:
                free.pop(number, None)
        return BoardView({n: json.loads(figures) for n, figures, _, _ in rows if figures is not None}, free)

    def claim(self, numbers: Sequence[int], most: int) -> list[int]:
        """Claim the first `most` pieces, as far as nobody has by now; which were won."""
        wanted = sorted(numbers[:most])  # in one order, lest two hosts wait for each other
        if not wanted:
            return []
        claim = {"topic": self.topic, "host": self.host, "expires_s": self._now + self.lease_s, "claims": 1}
        insert = _INSERTS[self.engine.dialect.name](TABLE).values([{**claim, "number": n} for n in wanted])
        statement = insert.on_conflict_do_update(
            index_elements=[TABLE.c.topic, TABLE.c.number],
            set_={
                "host": insert.excluded.host,
                "expires_s": insert.excluded.expires_s,
                "claims": TABLE.c.claims + 1,
            },
            where=and_(TABLE.c.figures.is_(None), TABLE.c.expires_s < self._now),
        ).returning(TABLE.c.number)
        with self.engine.begin() as connection:
            return sorted(connection.scalars(statement))

    def renew(self, numbers: Sequence[int]) -> None:
        """Make claims last from now."""
        self._update(self._mine(numbers), expires_s=self._now + self.lease_s)

    def release(self, numbers: Sequence[int]) -> None:
        """Give up those claims that are not answered."""
        self._update(self._mine(numbers), expires_s=_NO_CLAIM_S, claims=TABLE.c.claims - 1)

    def answer(self, number: int, figures: Row) -> None:
        """Tell what came out of a piece; where somebody was first, that stands."""
        open_still = and_(self._ours([number]), TABLE.c.figures.is_(None))
        self._update(open_still, host=self.host, figures=json.dumps(figures))

    def _update(self, which: ColumnElement[bool], **values: Any) -> None:  # noqa: ANN401 - columns of many types
        with self.engine.begin() as connection:
            connection.execute(update(TABLE).where(which).values(**values))

    def _ours(self, numbers: Sequence[int]) -> ColumnElement[bool]:
        return and_(TABLE.c.topic == self.topic, TABLE.c.number.in_(numbers))

    def _mine(self, numbers: Sequence[int]) -> ColumnElement[bool]:
        return and_(self._ours(numbers), TABLE.c.host == self.host, TABLE.c.figures.is_(None))

    @property
    def _now(self) -> ColumnElement[float]:
        """Seconds since 1970."""
        if self.engine.dialect.name == "sqlite":
            return (func.julianday("now") - 2440587.5) * 86400.0
        return cast(extract("epoch", func.clock_timestamp()), Double)
