"""Dimensions of a transformer over tokens: the stack, its tables, and how positions enter."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.family import Count, CountOrNone
from phaze.workload.families.stack import StackDimensions


class TransformerDimensions(StackDimensions):
    """Shape of a transformer over tokens.

    `embedding_size` defaults to `hidden`. `position_rows` is the length of the learned table where it is
    longer than `max_positions` (OPT). `token_types` is BERT's segment table, 0 without one.
    """

    vocabulary: Annotated[Count, Field(description="rows of the token table")]
    max_positions: Annotated[Count, Field(description="no sequence may be longer")]
    embedding_size: Annotated[
        Count | None, Field(description="width of the token table (default: hidden)")
    ] = None
    embedding_norm: Annotated[bool, Field(description="a norm after the token table (BLOOM)")] = False
    position_rows: Annotated[
        Count | None, Field(description="rows of a learned table (default: max_positions)")
    ] = None
    token_types: Annotated[CountOrNone, Field(description="rows of a segment table (BERT), 0 for none")] = 0
    final_norm: Annotated[bool, Field(description="a norm after the last block, with norm_place pre")] = True
    tied_embeddings: Annotated[bool, Field(description="one table for input and output")] = True

    @property
    def embedding(self) -> int:
        """Width of the token table."""
        return self.embedding_size or self.hidden

    @property
    def longest_sequence(self) -> int:
        """Positions of the model."""
        return self.max_positions

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        """Reject a table that is too short."""
        if self.position_rows is not None and self.position_rows < self.max_positions:
            msg = f"position_rows ({self.position_rows}) is below max_positions ({self.max_positions})"
            raise ValueError(msg)
        return self
