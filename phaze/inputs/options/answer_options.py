"""Options of where an answer goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from phaze.inputs.options.option_model import Effect, Options, option


@dataclass(frozen=True, kw_only=True)
class JsonOptions(Options):
    """How an answer is printed."""

    json: bool = option(
        False,
        "Print the result document to stdout and nothing else.",
        "--json",
        effect=Effect.NOTHING,
        in_python=False,
    )
    quiet: bool = option(
        False,
        "No progress and no remarks on stderr.",
        *("--quiet", "-q"),
        effect=Effect.NOTHING,
        in_python=False,
    )


@dataclass(frozen=True, kw_only=True)
class KeptOptions(JsonOptions):
    """Where an answer that takes a moment is kept."""

    out: Path | None = option(
        None,
        "Keep the answer in this folder (default: print it only).",
        taken="str | Path | None",
        effect=Effect.NOTHING,
        meaning="Folder to keep the answer in (default: nothing is written).",
    )
