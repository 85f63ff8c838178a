"""Options of `dse sweep` alone."""

from __future__ import annotations

from typing import Annotated

import typer

Trials = Annotated[int, typer.Option(min=1, help="Designs to try, those of earlier runs included.")]
Sampler = Annotated[
    str, typer.Option(help="tpe, random, nsga2, gp or cmaes; the last two need extras of these names.")
]
Objectives = Annotated[str, typer.Option(help="Metrics, separated by commas.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes that evaluate; they change no answer.")]
Storage = Annotated[
    str | None,
    typer.Option(
        help="Database URL, sqlite:///FILE or postgresql://... (default: a journal file in the run directory).",
        metavar="URL",
    ),
]
Study = Annotated[str, typer.Option(help="Name of the study in its storage.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the study, in a run directory that holds something.")
]
