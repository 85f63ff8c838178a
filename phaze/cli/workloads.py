"""`dse workloads`: the built-in models."""

from __future__ import annotations

from phaze.cli.noun import Row, noun_app


def _rows() -> list[Row]:
    from phaze.workload.spec import list_workloads, load_workload

    models = [load_workload(name) for name in list_workloads()]
    return [{"name": m.name, "parameters": m.parameter_count} for m in models]


def _show(name: str) -> str:
    from phaze.cli.output import file_text
    from phaze.workload.spec import find_workload

    return file_text(find_workload(name))


app = noun_app("workloads", "workloads", _rows, _show)
