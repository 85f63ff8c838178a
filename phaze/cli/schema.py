"""`dse schema`: the JSON Schema of the result document."""

from __future__ import annotations


def command() -> None:
    """Print the JSON Schema of the document that --json and result.json hold."""
    from phaze.cli.output import print_json
    from phaze.explore.document import RESULT_SCHEMA, ResultDocument

    schema = ResultDocument.model_json_schema(by_alias=True, mode="serialization")
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": RESULT_SCHEMA, **schema})
