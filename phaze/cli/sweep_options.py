"""Options of `dse sweep` alone."""

from __future__ import annotations

from typing import Annotated

import typer

from phaze.cli import completion as known

Trials = Annotated[int, typer.Option(min=1, help="Designs to try, those of earlier runs included.")]
Sampler = Annotated[
    str,
    typer.Option(
        help="tpe, random, nsga2, gp or cmaes; the last two need extras of these names.",
        autocompletion=known.one_of("tpe", "random", "nsga2", "gp", "cmaes"),
    ),
]
Objectives = Annotated[
    str, typer.Option(help="Metrics, separated by commas.", autocompletion=known.several_of(*known.METRICS))
]
Storage = Annotated[
    str | None,
    typer.Option(
        help="Database URL, sqlite:///FILE or postgresql://... (default: a journal file in the run directory).",
        metavar="URL",
    ),
]
Batch = Annotated[
    int,
    typer.Option(min=1, max=10_000, help="Trials asked together: the most that can be evaluated at a time."),
]
Join = Annotated[
    bool,
    typer.Option("--join", help="Begin or continue the study together with all hosts that say the same."),
]
Study = Annotated[str, typer.Option(help="Name of the study in its storage.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the study, in a run directory that holds something.")
]
