"""`dse schema`: the JSON Schemas of the documents that `--json` prints."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel


class Kind(StrEnum):
    """Documents with a schema."""

    RESULT = "result"
    PLAN = "plan"
    SERVING = "serving"
    WHATIF = "whatif"


def command(
    of: Annotated[
        str, typer.Option(help="result (dse run, evaluate), plan (dse plan), serving or whatif.")
    ] = "result",
) -> None:
    """Print the JSON Schema of a document that --json prints and result.json holds.

    Example: dse schema --of plan
    """
    from phaze.cli.output import print_json
    from phaze.explore.document import RESULT_SCHEMA, ResultDocument
    from phaze.explore.planning.document import PLAN_SCHEMA, PlanDocument
    from phaze.explore.planning.serving import SERVING_SCHEMA, ServingDocument
    from phaze.explore.planning.whatif import WHATIF_SCHEMA, WhatIfDocument
    from phaze.inputs.choice import choose

    documents: dict[Kind, tuple[str, type[BaseModel]]] = {
        Kind.RESULT: (RESULT_SCHEMA, ResultDocument),
        Kind.PLAN: (PLAN_SCHEMA, PlanDocument),
        Kind.SERVING: (SERVING_SCHEMA, ServingDocument),
        Kind.WHATIF: (WHATIF_SCHEMA, WhatIfDocument),
    }
    name, model = documents[choose(Kind, of, "--of")]
    schema = model.model_json_schema(by_alias=True, mode="serialization")
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": name, **schema})
