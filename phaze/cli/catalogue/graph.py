"""`dse graph`: the operators of a workload and what waits for what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.shell_completion import one_of

if TYPE_CHECKING:
    from phaze.report.charts.operator_graph_chart import Drawing


def command(
    workload: opt.WorkloadArgument,
    layer: Annotated[
        str | None,
        typer.Option(help="Operators of this layer: its number, from 1, or its name.", metavar="N|NAME"),
    ] = None,
    mode: opt.ModeOption = "training",
    microbatch: opt.Microbatch = 1,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="Devices that share each layer.")] = 1,
    attention: opt.Attention = "flash",
    bind: opt.Bind = None,
    format: Annotated[
        str,
        typer.Option(
            help="text, svg, dot (Graphviz), mermaid, json; of the whole model chakra, an execution trace, or onnx.",
            autocompletion=one_of("text", "dot", "json", "mermaid", "svg", "chakra", "onnx"),
        ),
    ] = "text",
    out: Annotated[Path | None, typer.Option(help="File to write (default: stdout).")] = None,
) -> None:
    """Show the layers of a workload, or the operators of one layer: forward, and in training backward.

    Examples:
        dse graph gpt3 --format svg --out gpt3.svg
        dse graph resnet50 --layer bottleneck1 --format mermaid
        dse graph gpt3 --mode decode --tensor-parallel 8
        dse graph gpt3 --tensor-parallel 8 --format chakra --out gpt3.0.et
        dse graph llama2-7b --format onnx --out llama2-7b.onnx

    See also: dse workloads show for FLOPs and bytes.
    """
    from phaze.api.workload_verbs import GraphFormat, drawing, graph_bytes, graph_text
    from phaze.inputs.named_choices import choose
    from phaze.inputs.task_inputs import open_workload

    wanted = choose(GraphFormat, format, "--format")
    model = open_workload(workload, mode=mode, attention=attention, bind=bind or ())
    drawn = drawing(model, layer, microbatch, tensor_parallel)
    if wanted.is_binary:
        _write_bytes(graph_bytes(model, drawn, wanted), out, f"--format {wanted}", wanted.suffix)
    else:
        _write(graph_text(drawn, wanted, _tables), out)


def _write_bytes(content: bytes, out: Path | None, option: str, suffix: str) -> None:
    """Write a file of bytes. InputError without one."""
    from phaze.errors import InputError
    from phaze.runs.atomic_files import check_writable, write_atomically

    if out is None:
        raise InputError(f"{option} is binary: say where with --out FILE{suffix}")
    check_writable(out)
    write_atomically(out, content)
    _tell(out)


def _tables(drawing: Drawing) -> str:
    """The tables as the terminal would show them."""
    from phaze.cli.console_output import console
    from phaze.report.charts.operator_graph_chart import drawing_tables

    screen = console()
    with screen.capture() as captured:
        for table in drawing_tables(drawing):
            screen.print(table)
            screen.print()
    return captured.get()


def _write(text: str, out: Path | None) -> None:
    from phaze.runs.atomic_files import check_writable, write_atomically

    if out is None:
        typer.echo(text, nl=False)
        return
    check_writable(out)
    write_atomically(out, text)
    _tell(out)


def _tell(out: Path) -> None:
    """Where the graph is."""
    from phaze.cli.console_output import say

    say(f"graph: {out}", quiet=False)
