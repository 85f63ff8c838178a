"""`dse workloads`: the built-in models."""

from __future__ import annotations

from phaze.cli.noun import Row, noun_app


def _rows() -> list[Row]:
    from phaze.workload.spec import list_workloads

    return [
        {
            "name": model.name,
            "family": model.family,
            "parameters": model.parameters,
            "layers": model.layers,
            "sequence_length": model.sequence_length,
            "global_batch": model.global_batch,
        }
        for model in list_workloads()
    ]


def _show(name: str) -> str:
    from importlib.resources import files
    from pathlib import Path

    from phaze.cli.output import file_text
    from phaze.workload.spec import builtin_names, load_workload

    if name in builtin_names():
        return files("phaze.workloads").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    load_workload(name)  # says what is wrong with an unknown name or a broken file
    return file_text(Path(name))


app = noun_app("workloads", "workloads", _rows, _show)
