"""`dse frameworks`: what training software costs and hides, for `--framework`."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.cli.catalogue.noun_commands import Row, noun_app
from phaze.cli.shell_completion import frameworks


def _rows() -> Sequence[Row]:
    from phaze.api.catalogue_verbs import frameworks

    return frameworks().rows


def _show(name: str) -> str:
    from phaze.hardware.catalogue import Catalogue, find
    from phaze.parallel.framework import load_framework
    from phaze.yaml_file import yaml_text

    load_framework(path := find(Catalogue.FRAMEWORK, name))
    return yaml_text(path)


app = noun_app("frameworks", "frameworks", _rows, _show, frameworks, "ideal")
