"""What `dse network fit` writes and prints."""

from __future__ import annotations

from pathlib import Path

import typer


def report(file: Path, out: Path | None, system: str | None, bandwidth: str | None, *, json: bool) -> None:
    """Fit, write or print the network file, and tell the errors. Raises InputError."""
    from phaze.cli.noun import write_new
    from phaze.cli.output import print_json, say
    from phaze.hardware.network_file import network_yaml
    from phaze.quantity import parse_rate
    from phaze.validation.network_fit import fit_network, read_samples

    wide = None if bandwidth is None else parse_rate(bandwidth, "--bandwidth")
    samples = read_samples(file, system)
    name = (out or file).stem
    found = fit_network(name, samples, wide)
    text = network_yaml(name, found.network.tiers, found.network.algorithms)
    if out is not None:
        write_new(str(out), lambda _: text)
    errors = {
        "rows_fitted": found.rows,
        "rows_aside": found.aside,
        "before_pct": found.before_pct,
        "after_pct": found.after_pct,
        "fitted_pct": found.fitted_pct,
    }
    if json:
        print_json({"network": name, "file": None if out is None else str(out), **errors})
        return
    say(
        f"{found.rows} rows fitted to {found.fitted_pct:.1f} %; on {found.aside} rows kept aside the error is "
        f"{found.before_pct:.1f} % with the constants for all chips, {found.after_pct:.1f} % with these",
        quiet=False,
    )
    typer.echo(text if out is None else f"network written to {out}", nl=out is not None)
