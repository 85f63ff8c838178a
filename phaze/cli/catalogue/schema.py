"""`dse schema`: the JSON Schemas of the documents that `--json` prints."""

from __future__ import annotations

from typing import Annotated

import typer

from phaze.cli.shell_completion import one_of


def command(
    of: Annotated[
        str,
        typer.Option(
            help="result (dse run, evaluate), sweep, compare, plan, serving, whatif, diff, certify, explanation, "
            "validate, or designs: a row of designs.csv.",
            autocompletion=one_of(
                *("result", "sweep", "compare", "plan", "serving", "whatif"),
                *("diff", "certify", "explanation", "validate", "designs"),
            ),
        ),
    ] = "result",
) -> None:
    """Print the JSON Schema of a document that --json prints and result.json holds, or of the design table.

    Examples:
        dse schema
        dse schema --of plan

    See also: dse explain for the meaning of a field.
    """
    from phaze.cli.console_output import print_json
    from phaze.inputs.named_choices import choose
    from phaze.runs.document_schemas import Kind, schema

    print_json(schema(choose(Kind, of, "--of")))
