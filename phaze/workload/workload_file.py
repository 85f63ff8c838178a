"""A workload file: what stands in the YAML, checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from phaze.errors import InputError
from phaze.workload.families.family_registry import FAMILIES, Family
from phaze.workload.families.model_family import Count, FamilyDimensions, Strict
from phaze.workload.training.training_numerics import Optimizer, Precision
from phaze.yaml_file import checked, parse_yaml, read_yaml, short_text

D = TypeVar("D", bound=FamilyDimensions)


class ExpertPlan(Strict):
    """Hand-made plan for 1024 devices: degrees."""

    pipeline: Annotated[Count, Field(description="stages")]
    tensor: Annotated[Count, Field(description="devices that share a layer")]
    data: Annotated[Count, Field(description="pipelines")]


class _Head(Strict):
    """The part of a workload file that says how to read the rest."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    family: Family


class WorkloadSpec(Strict, Generic[D]):
    """One workload file. `source` says for each field (or group of fields) where its numbers are from.

    `sequence_length` stands where samples are sequences, and only there.
    """

    schema_version: Annotated[Literal[1], Field(description="version of this format")]
    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="short name; results say the file's stem"),
    ]
    family: Annotated[Family, Field(description=", ".join(Family))]
    source: Annotated[
        dict[str, str], Field(min_length=1, description="where the numbers are from, in any keys")
    ]
    dimensions: Annotated[D, Field(description="sizes of the model, by family")]
    sequence_length: Annotated[
        Count | None, Field(description="tokens of one sample, where samples are sequences")
    ] = None
    global_batch: Annotated[
        Count | None,
        Field(
            description="samples of one iteration (default: 4 million tokens; without tokens 32 per device)"
        ),
    ] = None
    noise_scale: Annotated[
        Count | None,
        Field(
            description="gradient noise scale of a whole training, in samples (`dse plan --noise-scale own`)"
        ),
    ] = None
    precision: Annotated[Precision, Field(description="bf16, fp16, tf32 or fp32")] = Precision.BF16
    optimizer: Annotated[
        Optimizer, Field(description="adam (18 bytes per parameter), momentum (14) or sgd (10)")
    ] = Optimizer.ADAM
    expert_plan: Annotated[
        ExpertPlan | None, Field(description="a hand-made plan for 1024 devices to compare with")
    ] = None

    @model_validator(mode="after")
    def _fits_positions(self) -> Self:
        """A sequence cannot be longer than the model's positions."""
        self.check_sequence(self.sequence_length)
        return self

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], Self], tuple[dict[str, Any]]]:
        """Pickle as content: classes made for one family while running cannot be found by name."""
        return _of_content, (self.model_dump(exclude_unset=True),)

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
    return check_spec(parse_yaml(text, where), where)


def read_spec(path: Path) -> WorkloadSpec[FamilyDimensions]:
    """Read a workload file. Raises InputError naming the file and what is wrong in it."""
    return check_spec(read_yaml(path), str(path))


def check_spec(data: object, where: str) -> WorkloadSpec[FamilyDimensions]:
    """Workload file from its parsed content; `where` names it in errors. Raises InputError."""
    if not isinstance(data, dict):
        msg = f"{where}: must be a mapping: name, family, dimensions, ..., found {short_text(data)}"
        raise InputError(msg)
    return checked(_spec_of(checked(_Head, data, where).family), data, where)


def _spec_of(family: Family) -> type[WorkloadSpec[FamilyDimensions]]:
    """The class for one family, picked while running, which a type checker cannot follow."""
    return WorkloadSpec[FAMILIES[family]]  # type: ignore[valid-type]


def _of_content(content: dict[str, Any]) -> Any:  # noqa: ANN401 - the class that was pickled
    return _spec_of(content["family"]).model_validate(content)
