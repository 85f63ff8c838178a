"""A workload file: what stands in the YAML, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from phaze.errors import InputError
from phaze.workload.families.family import Count, FamilyDimensions, Strict
from phaze.workload.families.registry import FAMILIES, Family
from phaze.workload.numerics import Optimizer, Precision
from phaze.yaml_file import checked, parse_yaml, read_yaml

D = TypeVar("D", bound=FamilyDimensions)


class ExpertPlan(Strict):
    """Hand-made plan for 1024 devices: degrees."""

    pipeline: Count
    tensor: Count
    data: Count


class _Head(Strict):
    """The part of a workload file that says how to read the rest."""

    model_config = ConfigDict(extra="ignore")

    family: Family


class WorkloadSpec(Strict, Generic[D]):
    """One workload file. `source` says for each field (or group of fields) where its numbers are from.

    `sequence_length` stands where samples are sequences, and only there.
    """

    schema_version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    family: Family
    source: Annotated[dict[str, str], Field(min_length=1)]
    dimensions: D
    sequence_length: Count | None = None
    global_batch: Count | None = None
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAM
    expert_plan: ExpertPlan | None = None

    @model_validator(mode="after")
    def _fits_positions(self) -> Self:
        """A sequence cannot be longer than the model's positions."""
        self.check_sequence(self.sequence_length)
        return self

    def check_sequence(self, length: int | None) -> None:
        """Raise ValueError for a sequence length that the model cannot have."""
        limit = self.dimensions.longest_sequence
        if limit is None and length is not None:
            msg = (
                f"sequence_length {length} is given, but samples of family {self.family} have no free length"
            )
            raise ValueError(msg)
        if limit is not None and length is None:
            msg = f"sequence_length: missing, and family {self.family} has no default"
            raise ValueError(msg)
        if limit is not None and length is not None and length > limit:
            msg = f"sequence_length {length} exceeds the model's {limit} positions (dimensions.max_positions)"
            raise ValueError(msg)


def parse_spec(text: str, where: str) -> WorkloadSpec[FamilyDimensions]:
    """Read a workload file's text; `where` names the file in errors. Raises InputError."""
    return _spec(parse_yaml(text, where), where)


def read_spec(path: Path) -> WorkloadSpec[FamilyDimensions]:
    """Read a workload file. Raises InputError naming the file and what is wrong in it."""
    return _spec(read_yaml(path), str(path))


def _spec(data: object, where: str) -> WorkloadSpec[FamilyDimensions]:
    if not isinstance(data, dict):
        msg = f"{where}: expected a mapping with name, family, dimensions, ..., found {type(data).__name__}"
        raise InputError(msg)
    family = checked(_Head, data, where).family
    # the class for one family is picked while running, which a type checker cannot follow
    model: type[WorkloadSpec[FamilyDimensions]] = WorkloadSpec[FAMILIES[family]]  # type: ignore[valid-type]
    return checked(model, data, where)
