"""`dse compare`: several architectures side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import options as opt

if TYPE_CHECKING:
    from phaze.explore.document import Design


def command(
    workload: opt.Workloads,
    arch: Annotated[list[str], typer.Option("--arch", "-a", help="Chips, YAML files or run directories.")],
    more: Annotated[
        list[str] | None, typer.Argument(help="Further architectures.", metavar="[ARCH]...")
    ] = None,
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    mode: opt.ModeOption = "training",
    attention: opt.Attention = "flash",
    network: opt.Network = "default",
    json: opt.Json = False,
) -> None:
    """Compare architectures, each under its own best placement.

    Example: dse compare --arch a100 h100 tpuv4 --workload gpt3
    """
    from phaze.cli.output import choose, console, print_json
    from phaze.errors import InfeasibleError
    from phaze.explore.evaluator import evaluate
    from phaze.explore.request import EvaluateRequest
    from phaze.report.compare import print_comparison
    from phaze.workload.workload import Attention, Mode

    rows: dict[str, Design | str] = {}
    for name in (*arch, *(more or ())):
        request = EvaluateRequest(
            arch=name,
            workloads=tuple(workload),
            devices=devices,
            global_batch=global_batch,
            mode=choose(Mode, mode, "--mode"),
            attention=choose(Attention, attention, "--attention"),
            network=network,
        )
        try:
            rows[name] = evaluate(request)
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
        raise typer.Exit(InfeasibleError.exit_code)
