"""`dse cache`: what is remembered of earlier runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.cli.manual.typer_app import App

app = App(name="cache", help="Look at, or clear, what is remembered of earlier runs.")

Stale = Annotated[bool, typer.Option("--stale", help="Only what other versions of the model have left.")]


@app.command("info")
def info(json: opt.Json = False) -> None:
    """Show where the cache is, and what it holds of each version of the model.

    Examples:
        dse cache info
        dse cache info --json
    """
    from phaze.cli.console_output import print_json, print_rows
    from phaze.document_names import DocumentName
    from phaze.runs.store.evaluation_cache import LIMIT_BYTES, cache_file, kept_entries

    path = cache_file()
    size, versions = path.stat().st_size if path.exists() else 0, kept_entries()
    if json:
        print_json(
            {
                "schema": DocumentName.CACHE.version(1),
                "path": str(path),
                "size_bytes": size,
                "limit_bytes": LIMIT_BYTES,
                "versions": [asdict(version) for version in versions],
            }
        )
        return
    typer.echo(f"{path}: {size / 1e6:.1f} MB, at most {LIMIT_BYTES / 1e6:.0f} MB")
    print_rows(
        [
            {
                "model": "this version" if version.current else version.version[:12],
                "entries": version.entries,
                "bytes": version.bytes,
            }
            for version in versions
        ]
    )


@app.command("clear")
def clear(stale: Stale = False, json: opt.Json = False) -> None:
    """Remove what is remembered; no answer depends on it.

    Examples:
        dse cache clear
        dse cache clear --stale
    """
    from phaze.runs.store.evaluation_cache import clear_cache

    clear_cache(stale=stale)
    info(json=json)
