"""Options that several verbs share, with the same name and meaning everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shell_completion as known

_WORKLOAD = typer.Option(
    *("--workload", "-w"),
    help="Built-in name, YAML, ONNX or .pt2 file, or hf:CONFIG.JSON.",
    metavar="MODEL",
    autocompletion=known.workloads,
)
_ARCH = typer.Option(
    *("--arch", "-a"),
    help="Built-in chip, YAML file, run directory or RUN:ID.",
    autocompletion=known.archs,
)
Workload = Annotated[list[str], _WORKLOAD]
WorkloadOrNone = Annotated[list[str] | None, _WORKLOAD]
Arch = Annotated[str, _ARCH]
ArchOrNone = Annotated[str | None, _ARCH]
WorkloadArgument = Annotated[
    str,
    typer.Argument(
        help="Built-in name, YAML file or ONNX file.", metavar="WORKLOAD", autocompletion=known.workloads
    ),
]
Microbatch = Annotated[int, typer.Option(min=1, help="Samples of one microbatch.")]
Devices = Annotated[int, typer.Option(min=1, help="Accelerators the workload is spread over.")]
GlobalBatch = Annotated[
    int | None, typer.Option(min=1, help="Samples per iteration (default: the workload's own).")
]
ModeOption = Annotated[
    str,
    typer.Option(
        help="training, prefill (one forward pass) or decode (one token more of every sequence).",
        autocompletion=known.one_of("training", "prefill", "decode"),
    ),
]
Context = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens in the key-value cache before the pass (decode: the sequence length)."),
]
KvCache = Annotated[
    str,
    typer.Option(
        help="Layout of the key-value cache: contiguous or paged.",
        autocompletion=known.one_of("contiguous", "paged"),
    ),
]
Attention = Annotated[
    str,
    typer.Option(
        help="flash (no s x s tensor is kept), unfused, or eager (one by one).",
        autocompletion=known.one_of("flash", "unfused", "eager"),
    ),
]
Fusion = Annotated[
    str,
    typer.Option(help="all, none, or of epilogue, bias, bias-gradient, norm-residual, softmax, elementwise."),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        help="Linear layers in few bits where arrays are faster at it: fp8, fp8-early, fp8-rows, mxfp8, nvfp4 or none "
        "(default: fp8 on precision bf16+fp8).",
        autocompletion=known.one_of("none", "fp8", "fp8-early", "fp8-rows", "mxfp8", "nvfp4"),
    ),
]
Network = Annotated[str, typer.Option(help="Built-in network or YAML file.", autocompletion=known.networks)]
Rung = Annotated[
    str,
    typer.Option(
        help="Rung of the cost model: analytic, or calibrated on the chip's measured family.",
        autocompletion=known.one_of("analytic", "calibrated"),
    ),
]
Calibration = Annotated[
    Path | None, typer.Option(help="Constants from dse calibrate; implies --rung calibrated.")
]
Space = Annotated[str, typer.Option(help="Built-in design space or YAML file.", autocompletion=known.spaces)]
Power = Annotated[str | None, typer.Option(help="Power budget of one accelerator, for instance 400W.")]
Area = Annotated[
    str | None, typer.Option(help="Silicon area budget of one accelerator, for instance 800mm2.")
]
Node = Annotated[
    str | None,
    typer.Option(
        help="Process node, for instance N5 (default: the space's own).",
        autocompletion=known.one_of(*known.NODES),
    ),
]
Clock = Annotated[str | None, typer.Option(help="Clock, for instance 1.2GHz (default: the space's own).")]
PowerDensity = Annotated[
    str | None, typer.Option(help="Power per silicon area of the package, for instance 0.5W/mm2.")
]
Fix = Annotated[
    list[str] | None,
    typer.Option(help="Hold a field of the space: tensor_cores=8, hbm=hbm3x6.", metavar="FIELD=VALUE"),
]
Dvfs = Annotated[
    bool, typer.Option("--dvfs", help="Lower the clock of a design until the power budget holds.")
]
TdpMargin = Annotated[float, typer.Option(min=0.0, help="TDP over peak power.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
TimeLimit = Annotated[str, typer.Option(help="Stop after this long, for instance 10s or 2min.")]
Bind = Annotated[
    list[str] | None,
    typer.Option(help="Sizes of a file's symbolic dimensions.", metavar="NAME=SIZE,..."),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that do the work; they change no answer.")]
Executor = Annotated[
    str | None,
    typer.Option(help="Let the workers of a Dask cluster do it: dask://HOST:PORT.", metavar="ADDRESS"),
]
Out = Annotated[Path | None, typer.Option(help="Run directory (default: ./results/WORKLOAD-UTCTIME).")]
Keep = Annotated[
    Path | None, typer.Option("--out", help="Keep the answer in this folder (default: print it only).")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue in a run directory that holds something.")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Neither read nor write the cache that all runs share.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result document to stdout and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks on stderr.")]
