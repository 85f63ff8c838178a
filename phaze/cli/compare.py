"""`dse compare`: several architectures side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import options as opt

if TYPE_CHECKING:
    from phaze.explore.document import Design


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
    from phaze.cli.task import find_architecture, make_task
    from phaze.errors import InfeasibleError
    from phaze.explore.api import evaluate
    from phaze.report.compare import print_comparison

    task = make_task(
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
    chips = {name: find_architecture(name) for name in (*arch, *(more or ()))}
    rows: dict[str, Design | str] = {}
    for name, chip in chips.items():
        try:
            rows[name] = evaluate(task, chip)
        except InfeasibleError as error:
            rows[name] = str(error)
    if json:
        print_json(
            {
                "designs": {n: d.model_dump(mode="json") for n, d in rows.items() if not isinstance(d, str)},
                "infeasible": {n: d for n, d in rows.items() if isinstance(d, str)},
            }
        )
    else:
        print_comparison(rows, console())
    if all(isinstance(row, str) for row in rows.values()):
        raise InfeasibleError(f"none of {', '.join(rows)} can run {task.workload.name}")
