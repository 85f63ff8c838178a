"""Plans in files: what `dse plan --json` printed."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import ValidationError

from phaze.errors import InputError
from phaze.explore.planning.document import PLAN_SCHEMA, PlanDocument


def read_plan(path: Path) -> PlanDocument:
    """The document in a file, or on standard input (`-`). Raises InputError where there is none."""
    where = "standard input" if str(path) == "-" else str(path)
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: cannot be read ({getattr(error, 'strerror', error)})") from error
    try:
        return PlanDocument.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"])) or "document"
        raise InputError(
            f"{where}: not a {PLAN_SCHEMA} document of dse plan --json ({at}: {first['msg']})"
        ) from error
