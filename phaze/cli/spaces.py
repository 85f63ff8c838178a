"""`dse spaces`: the built-in design spaces."""

from __future__ import annotations

from phaze.cli.noun import Row, noun_app


def _rows() -> list[Row]:
    from phaze.hardware.space_file import list_spaces, load_space

    spaces = [load_space(name) for name in list_spaces()]
    return [{"name": s.name, "architectures": s.size, "description": s.description} for s in spaces]


def _show(name: str) -> str:
    from phaze.cli.output import file_text
    from phaze.hardware.catalogue import Catalogue, find

    return file_text(find(Catalogue.SPACE, name))


app = noun_app("spaces", "design spaces", _rows, _show)
