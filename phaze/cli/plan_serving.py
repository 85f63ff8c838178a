"""`dse plan serving`: the best way to serve requests on a cluster."""

from __future__ import annotations

import math
import sys
from typing import Annotated

import typer

from phaze.cli import options as opt
from phaze.errors import InputError


def command(
    arch: Annotated[
        str, typer.Option("--arch", "-a", help="Built-in chip, YAML file, run directory or RUN:ID.")
    ],
    workload: opt.Workload,
    devices: opt.Devices = 8,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 2048,
    output_tokens: Annotated[int, typer.Option(min=2, help="Tokens of an answer.")] = 256,
    max_ttft: Annotated[
        str | None, typer.Option(help="Target for the mean time to first token, for instance 1s.")
    ] = None,
    max_tpot: Annotated[
        str | None,
        typer.Option(help="Target for the mean time per output token after it, for instance 50ms."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second (default: as many as can be served).")
    ] = None,
    disaggregate: Annotated[
        bool | None,
        typer.Option(
            "--disaggregate/--no-disaggregate", help="Pools of their own for prefill (default: the better)."
        ),
    ] = None,
    chunk: Annotated[
        int | None, typer.Option(min=1, help="Prompt tokens a pass takes beside decode (default: the best).")
    ] = None,
    kv_cache: opt.KvCache = "paged",
    dispatch: Annotated[
        str | None, typer.Option(help="Host time per kernel, for instance 5us (default: none).")
    ] = None,
    network: opt.Network = "default",
    rung: opt.Rung = "analytic",
    simulate: Annotated[
        int | None, typer.Option(min=1, help="Simulate so many requests at --rate, for percentiles.")
    ] = None,
    seed: opt.Seed = 0,
    json: opt.Json = False,
) -> None:
    """Plan the serving of a model: replicas, batches, chunks, pools, within latency targets.

    Without --rate, the most that the devices can serve; with it, the fewest devices that serve it.

    Example: dse plan serving --arch h100 --workload llama3-70b --max-ttft 1s --max-tpot 50ms
    """
    from phaze.cli.output import console, print_json
    from phaze.cost.rung import Rung
    from phaze.explore.planning.serving import serve
    from phaze.hardware.network import load_network
    from phaze.inputs.architecture import find_architecture
    from phaze.inputs.choice import choose
    from phaze.inputs.files import input_files, with_inputs
    from phaze.inputs.task import one_workload
    from phaze.placement.serving import ServingOptions, ServingSpace, Targets, Traffic
    from phaze.report.serving import print_serving
    from phaze.workload.rules_cache import KvCache

    if simulate is not None and rate is None:
        raise InputError("--simulate needs --rate: requests arrive at some rate")
    space = ServingSpace(
        str(one_workload(workload)),
        find_architecture(arch),
        devices,
        load_network(network),
        Traffic(prompt, output_tokens, rate),
        Targets(_seconds(max_ttft, "--max-ttft"), _seconds(max_tpot, "--max-tpot")),
        ServingOptions(
            kv_cache=choose(KvCache, kv_cache, "--kv-cache"),
            chunk=chunk,
            disaggregate=disaggregate,
            dispatch_s=0.0 if dispatch is None else _seconds(dispatch, "--dispatch"),
            rung=choose(Rung, rung, "--rung"),
        ),
    )
    plan, tried, document = serve(space, simulate, seed)
    if json:
        print_json(with_inputs(document, input_files(workload, network), ["dse", *sys.argv[1:]]))
    else:
        print_serving(plan, space, tried, console())


def _seconds(text: str | None, name: str) -> float:
    """A time; infinite where none is given."""
    from phaze.quantity import parse_time

    return math.inf if text is None else parse_time(text, name)
