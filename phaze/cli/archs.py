"""`dse archs`: the built-in architectures."""

from __future__ import annotations

from phaze.cli.noun import Row, noun_app


def _rows() -> list[Row]:
    from phaze.hardware.architecture import list_architectures, load_architecture

    chips = [load_architecture(name) for name in list_architectures()]
    return [{"name": chip.name, "description": chip.description} for chip in chips]


def _show(name: str) -> str:
    from phaze.inputs.architecture import find_architecture
    from phaze.report.architecture import architecture_text

    return architecture_text(find_architecture(name))


app = noun_app("archs", "architectures", _rows, _show)
