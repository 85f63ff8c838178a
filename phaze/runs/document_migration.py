"""Old documents become new ones: a format with its versions, and the pure step from each version to the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from phaze import __version__
from phaze.document_names import DocumentName
from phaze.errors import InputError

Document = Mapping[str, Any]
Step = Callable[[Document], Document]


def same_but_for_the_manifest(document: Document) -> Document:
    """The manifest also tells what was asked and of what machine; nobody knows it of old runs."""
    return {**document, "manifest": {**document["manifest"], **_UNKNOWN}}


def as_is(document: Document) -> Document:
    """The next version says more; what nobody could ask for before is at its default."""
    return document


def whatif_2(document: Document) -> Document:
    """Points hold plans of version 2; when and by what they were made stands there only."""
    points = _with_plans(document, same_but_for_the_manifest, DocumentName.PLAN.version(2))
    return {**document, "points": points, "manifest": None}


def whatif_3(document: Document) -> Document:
    """Points hold plans of version 3."""
    return {**document, "points": _with_plans(document, as_is, DocumentName.PLAN.version(3))}


def _with_plans(document: Document, step: Step, schema: str) -> list[dict[str, Any]]:
    """Points, each plan a version later."""
    return [
        {**point, "plan": None if point["plan"] is None else {**step(point["plan"]), "schema": schema}}
        for point in document["points"]
    ]


def never_kept(document: Document) -> Document:
    """No step: what was printed and not kept lacks its manifest. Raises InputError."""
    raise InputError(f"{document['schema']} was printed only and says too little to be read back; ask again")


_UNKNOWN = {"asked": None, "machine": None}


Model_co = TypeVar("Model_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True)
class Format(Generic[Model_co]):
    """Documents of one name. `steps[k]` leads from version k + 1 to k + 2, the last one to the present version."""

    name: DocumentName
    model: type[Model_co]
    steps: Sequence[Step] = ()

    @property
    def version(self) -> int:
        """The version that is written."""
        return len(self.steps) + 1

    @property
    def schema(self) -> str:
        """Schema of a document of today: name and version."""
        return self.name.version(self.version)

    def read(self, content: object, where: str) -> Model_co:
        """A document of any version as one of today; `where` names it in errors.

        Raises InputError where it is none of these, newer than this program, or not valid.
        """
        document: Document = content if isinstance(content, dict) else {}
        version = version_of(document, self.name)
        if "schema" not in document:
            raise InputError(f"{where} is no document of dse: it names no schema, such as {self.schema!r}")
        if version is None or version < 1:
            raise InputError(
                f"{where} has schema {document.get('schema')!r}; this version reads {self.schema!r}"
            )
        if version > self.version:
            raise InputError(f"{where} has schema {self.name}/{version}, {_newer(document, self.schema)}")
        try:
            return self.model.model_validate(self._of_today(document, version))
        except (
            KeyError,
            TypeError,
            AttributeError,
        ) as error:  # a step met something that is no such document
            raise InputError(f"{where} is not a valid {self.name}/{version}") from error
        except ValidationError as error:
            raise InputError(
                f"{where} is not a valid {self.name}/{version}: {_first_problem(error)}"
            ) from error

    def _of_today(self, document: Document, version: int) -> Document:
        """A document of an earlier version, a step after the other."""
        for number, step in enumerate(self.steps[version - 1 :], version + 1):
            document = {**step(document), "schema": self.name.version(number)}
        return document


def version_of(document: Document, name: str) -> int | None:
    """The version of a document of a format; none where it is of another one."""
    found = re.fullmatch(rf"{re.escape(name)}/(\d{{1,9}})", str(document.get("schema")))
    return int(found[1]) if found else None


def _newer(document: Document, ours: str) -> str:
    """Whose document it is, and what reads it."""
    manifest = document.get("manifest")
    versions = manifest.get("versions") if isinstance(manifest, Mapping) else None
    writer = versions.get("phaze-dse") if isinstance(versions, Mapping) else None
    by = f"phaze-dse {writer}" if writer else "a later phaze-dse"
    needed = f"phaze-dse {writer} or later" if writer else "a later phaze-dse"
    return (
        f"written by {by}; this is phaze-dse {__version__}, which reads up to {ours}: read it with {needed}"
    )


def _first_problem(error: ValidationError) -> str:
    problem: Any = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}"
