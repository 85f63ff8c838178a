"""`dse workloads`: the built-in models."""

from __future__ import annotations

from phaze.cli.noun import Row, noun_app


def _rows() -> list[Row]:
    from phaze.workload.library import list_workloads

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
    from phaze.cli.output import file_text
    from phaze.errors import InputError
    from phaze.workload.library import find_workload

    if name.endswith(".onnx"):
        raise InputError(f"{name} is no YAML file; show prints workload files only")
    return file_text(find_workload(name))


app = noun_app("workloads", "workloads", _rows, _show)
