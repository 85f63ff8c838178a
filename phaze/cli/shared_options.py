"""Options that verbs without a model share, with the same name and meaning everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from phaze.cli import shell_completion as known

WorkloadArgument = Annotated[
    str,
    typer.Argument(
        help="Built-in name, YAML file or ONNX file.", metavar="WORKLOAD", autocompletion=known.workloads
    ),
]
Microbatch = Annotated[int, typer.Option(min=1, help="Samples of one microbatch.")]
ModeOption = Annotated[
    str,
    typer.Option(
        help="training, prefill (one forward pass) or decode (one token more of every sequence).",
        autocompletion=known.one_of("training", "prefill", "decode"),
    ),
]
Attention = Annotated[
    str,
    typer.Option(
        help="flash (no s x s tensor is kept), unfused, or eager (one by one).",
        autocompletion=known.one_of("flash", "unfused", "eager"),
    ),
]
Power = Annotated[str | None, typer.Option(help="Power budget of one accelerator, for instance 400W.")]
Area = Annotated[
    str | None, typer.Option(help="Silicon area budget of one accelerator, for instance 800mm2.")
]
TdpMargin = Annotated[float, typer.Option(min=0.0, help="TDP over peak power.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
TimeLimit = Annotated[str, typer.Option(help="Stop after this long, for instance 10s or 2min.")]
Bind = Annotated[
    list[str] | None,
    typer.Option(help="Sizes of a file's symbolic dimensions.", metavar="NAME=SIZE,..."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result document to stdout and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks on stderr.")]
