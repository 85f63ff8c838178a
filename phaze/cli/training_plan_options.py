"""Options that fix a choice of a training plan, for every verb that takes one."""

from __future__ import annotations

from typing import Annotated

import typer

from phaze.cli import shell_completion as known

Degree = Annotated[int | None, typer.Option(min=1, help="Fix this degree (default: the best).", metavar="N")]
Sequence = Annotated[
    bool | None,
    typer.Option(
        "--sequence-parallel/--no-sequence-parallel", help="Divide tokens between divided products, or not."
    ),
]
Whole = Annotated[
    str | None,
    typer.Option(
        help="Layers that tensor ranks keep whole, each for its own tokens: any (the best), none (default), or "
        "embedding, attention, mlp, head joined by +.",
        autocompletion=known.one_of("any", "none", "embedding", "attention", "mlp", "head"),
    ),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        help="gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v or dualpipe.",
        autocompletion=known.one_of("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe"),
    ),
]
Chunks = Annotated[int | None, typer.Option(min=1, help="Parts of the model on each device (interleaving).")]
Recompute = Annotated[
    str | None,
    typer.Option(
        help="none, selective or full (default: the least that fits).",
        autocompletion=known.one_of("none", "selective", "full"),
    ),
]
Zero = Annotated[
    int | None,
    typer.Option(min=0, max=3, help="What replicas divide: 1 optimizer, 2 and gradients, 3 and weights."),
]
Order = Annotated[
    str | None,
    typer.Option(
        help="tensor-context-data-pipeline or tensor-context-pipeline-data.",
        autocompletion=known.one_of("tensor-context-data-pipeline", "tensor-context-pipeline-data"),
    ),
]
Offload = Annotated[
    str | None,
    typer.Option(
        help="What the host's memory holds: none (default), any (the best), or of weights, activations, optimizer.",
        autocompletion=known.one_of("none", "any", "weights", "activations", "optimizer"),
        metavar="WHAT+...",
    ),
]
Framework = Annotated[
    str,
    typer.Option(
        help="Built-in framework or YAML file: what the software hides, costs and can run.",
        autocompletion=known.frameworks,
    ),
]
Plans = Annotated[
    str,
    typer.Option(
        help="Space of plans: full (what can be launched), any (ragged degrees, too), megatron, phaze, or a YAML file.",
        autocompletion=known.plans,
        metavar="NAME|FILE",
    ),
]
Attention = Annotated[
    str | None,
    typer.Option(
        help="flash, unfused or eager (default: the framework's; without one flash).",
        autocompletion=known.one_of("flash", "unfused", "eager"),
    ),
]
Fusion = Annotated[
    str | None,
    typer.Option(
        help="all, none, or of epilogue, bias-gradient, norm-residual, softmax, elementwise (default: the framework's)."
    ),
]
