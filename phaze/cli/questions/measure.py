"""`dse measure`: tables for a user's own measurements, and served models against the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.manual.typer_app import App
from phaze.cli.shell_completion import archs, networks, one_of

app = App(
    name="measure",
    help="Measure a GPU, write tables for your own measurements, or compare served models with the model.",
)


@app.callback()
def _measure() -> None:
    """Hold what the noun has."""


@app.command()
def template(
    what: Annotated[
        str,
        typer.Argument(
            help="gemm (products, for dse calibrate), collective (for dse networks fit) or serving (for dse measure "
            "serving).",
            autocompletion=one_of("gemm", "collective", "serving"),
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="File to write (default: stdout).")] = None,
) -> None:
    """Write a table with documented columns and example rows, to fill in with measurements.

    Examples:
        dse measure template gemm --out products.csv
        dse measure template collective

    See also: dse calibrate; dse networks fit; dse measure serving.
    """
    from phaze.inputs.named_choices import choose
    from phaze.runs.atomic_files import check_writable, write_atomically
    from phaze.validation.measured.own_measurements import Template, template_text

    text = template_text(choose(Template, what, "WHAT"))
    if out is None:
        typer.echo(text, nl=False)
        return
    check_writable(out)
    write_atomically(out, text)


@app.command()
def gpu(
    out: Annotated[Path | None, typer.Option(help="Folder to write the tables into.")] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure this part only: idle, products, kernels, attention, steps, decode; may be repeated.",
            autocompletion=one_of("idle", "products", "kernels", "attention", "steps", "decode"),
        ),
    ] = None,
    loop: Annotated[str, typer.Option(help="Time of the loop over which power is read.")] = "1.2s",
    time_limit: Annotated[str, typer.Option(help="Begin nothing after this time.")] = "15min",
    script: Annotated[
        Path | None,
        typer.Option(
            help="Write the script that measures, for a machine without phaze, and measure nothing."
        ),
    ] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Measure this machine's NVIDIA GPU: kernels, training steps and decoding, with watts, clocks and memory.

    It needs PyTorch with CUDA and takes some five minutes. Tables are those that dse calibrate and dse validate read;
    their comments say what the columns hold. The board's settings are left as they are.

    Examples:
        dse measure gpu --out measured
        dse measure gpu --out measured --part products --loop 2s
        dse measure gpu --script gpu.py

    See also: dse calibrate; dse validate --data measured.
    """
    from phaze.api.measured_verbs import gpu_measured, gpu_script_text
    from phaze.cli.console_output import say
    from phaze.errors import InputError
    from phaze.runs.atomic_files import check_writable, write_atomically

    if script is not None:
        check_writable(script)
        write_atomically(script, gpu_script_text())
        say(f"written: {script}; run it as python {script.name} --out DIR", quiet=quiet)
        return
    if out is None:
        raise InputError(
            "give the folder for the tables, --out DIR, or --script FILE for the script that measures"
        )
    written = gpu_measured(out, part or (), loop, time_limit, lambda line: say(line, quiet=quiet))
    for path in written:
        typer.echo(path)


@app.command()
def serving(
    file: Annotated[Path, typer.Argument(help="Table, as dse measure template serving.", metavar="FILE")],
    arch: Annotated[
        str, typer.Option("--arch", "-a", help="The chip: built-in name or YAML file.", autocompletion=archs)
    ],
    network: Annotated[
        str, typer.Option(help="Built-in network or YAML file.", autocompletion=networks)
    ] = "default",
    rung: Annotated[
        str, typer.Option(help="Rung: analytic, calibrated.", autocompletion=one_of("analytic", "calibrated"))
    ] = "analytic",
    json: opt.Json = False,
) -> None:
    """Compare measured times per output token with the model, and find the host time per kernel that explains them.

    That time is what --dispatch of dse plan serving takes. The error with it is that of rows which were left out.

    Examples:
        dse measure serving served.csv --arch h100 --rung calibrated
        dse measure serving served.csv --arch mychip.yaml --network pod.yaml --json

    See also: dse measure template serving.
    """
    from phaze.api.measured_verbs import served_fit, served_rows, serving_sentences
    from phaze.cli.console_output import print_json, print_rows
    from phaze.inputs.architecture_names import find_architecture

    fit = served_fit(file, find_architecture(arch), network, rung)
    if json:
        after = None if fit.left_out is None else 100 * fit.left_out
        errors = {"before_pct": 100 * fit.before, "left_out_pct": after}
        print_json({"dispatch_s": fit.dispatch_s, **errors, "rows": served_rows(fit)})
        return
    print_rows(served_rows(fit))
    for sentence in serving_sentences(fit, "--dispatch {:.3g}us"):
        typer.echo(sentence)
