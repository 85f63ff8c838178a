"""Options of `dse run` alone."""

from __future__ import annotations

from typing import Annotated

import typer

from phaze.cli import completion as known

Devices = Annotated[
    int | None, typer.Option(min=1, help="Accelerators the workload is spread over (default: 1024).")
]
Objective = Annotated[
    str,
    typer.Option(
        help="throughput, throughput_per_tdp, tdp, area, energy_per_sample, memory or cost_per_chip.",
        autocompletion=known.one_of(*known.OBJECTIVES),
    ),
]
Axes = Annotated[
    str | None,
    typer.Option(
        help="Frontier on these metrics besides the objective, for instance throughput,area.",
        autocompletion=known.several_of(*known.METRICS),
    ),
]
Strategy = Annotated[
    str,
    typer.Option(
        help="certified, phaze, wham, random, tpe, gp, nsga2 or cmaes.",
        autocompletion=known.one_of("certified", "phaze", "wham", "random", "tpe", "gp", "nsga2", "cmaes"),
    ),
]
Evaluations = Annotated[
    int | None, typer.Option(min=1, help="Architectures a strategy may evaluate (default: 200).")
]
Designs = Annotated[
    str | None,
    typer.Option(
        help="Of wham: one design (default), or per-stage.", autocompletion=known.one_of("one", "per-stage")
    ),
]
TopK = Annotated[int | None, typer.Option(min=1, help="Of wham: designs kept for each stage (default: 10).")]
Robust = Annotated[
    bool,
    typer.Option("--robust", help="Rank near-optimal designs where the model's constants are wrong."),
]
Combine = Annotated[
    str,
    typer.Option(
        help="Several workloads: geomean, mean or worst of ratios, or throughput.",
        autocompletion=known.one_of("geomean", "mean", "worst", "throughput"),
    ),
]
Weight = Annotated[
    list[str] | None, typer.Option(help="Weight of one of several workloads.", metavar="NAME=NUMBER")
]
MinThroughput = Annotated[
    float | None, typer.Option(min=0.0, help="Least throughput of every workload, samples/s.")
]
MaxLatency = Annotated[str | None, typer.Option(help="Longest iteration (prefill: batch), for instance 2s.")]
ClusterPower = Annotated[
    str | None, typer.Option(help="Power budget of all devices, their number being free: 1MW.")
]
ClusterCost = Annotated[
    float | None,
    typer.Option(help="Budget for making all devices, in USD, their number being free: 20e6."),
]
ClusterOverhead = Annotated[float, typer.Option(help="Power of the cluster over that of its accelerators.")]
Tokens = Annotated[float | None, typer.Option(help="Tokens to train on: days, energy and money of the run.")]
Samples = Annotated[float | None, typer.Option(help="Samples to train on, instead of --tokens.")]
ElectricityPrice = Annotated[float | None, typer.Option(help="USD per kWh (default: of the price file).")]
Pue = Annotated[float | None, typer.Option(help="Power usage effectiveness (default: of the price file).")]
Gap = Annotated[float, typer.Option(min=0.0, help="Stop as soon as this gap is proven.")]
