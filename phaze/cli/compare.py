"""`dse compare`: several architectures side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from phaze.cli import options as opt


def command(
    workload: opt.Workload,
    arch: Annotated[list[str], typer.Option("--arch", "-a", help="Chips, YAML files or run directories.")],
    more: Annotated[
        list[str] | None, typer.Argument(help="Further architectures.", metavar="[ARCH]...")
    ] = None,
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    mode: opt.ModeOption = "training",
    context: opt.Context = None,
    kv_cache: opt.KvCache = "contiguous",
    attention: opt.Attention = "flash",
    fusion: opt.Fusion = "all",
    bind: opt.Bind = None,
    network: opt.Network = "default",
    rung: opt.Rung = "analytic",
    json: opt.Json = False,
) -> None:
    """Compare architectures, each under its own best placement.

    Example: dse compare --arch a100 h100 tpuv4 --workload gpt3
    """
    from phaze.cli.output import console, print_json
    from phaze.inputs.known import check_some_can, compared
    from phaze.report.compare import print_comparison

    rows = compared(
        (*arch, *(more or ())),
        workload,
        mode=mode,
        attention=attention,
        devices=devices,
        global_batch=global_batch,
        network=network,
        bind=bind or (),
        context=context,
        kv_cache=kv_cache,
        fusion=fusion,
        rung=rung,
    )
    if json:
        print_json(
            {
                "designs": {n: d.model_dump(mode="json") for n, d in rows.items() if not isinstance(d, str)},
                "infeasible": {n: d for n, d in rows.items() if isinstance(d, str)},
            }
        )
    else:
        print_comparison(rows, console())
    check_some_can(rows, workload)
