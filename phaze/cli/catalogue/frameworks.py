"""`dse frameworks`: what training software costs and hides, for `--framework`."""

from __future__ import annotations

from phaze.cli.catalogue.noun_commands import Row, noun_app
from phaze.cli.shell_completion import frameworks


def _rows() -> list[Row]:
    from phaze.parallel.framework import list_frameworks, load_framework

    return [
        {
            "name": framework.name,
            "attention": framework.attention.value,
            "stretch": framework.stretch,
            "dispatch_s": framework.dispatch_s,
            "tensor_overlap": framework.tensor_overlap.value,
        }
        for framework in map(load_framework, list_frameworks())
    ]


def _show(name: str) -> str:
    from phaze.hardware.catalogue import Catalogue, find
    from phaze.parallel.framework import load_framework
    from phaze.yaml_file import yaml_text

    load_framework(path := find(Catalogue.FRAMEWORK, name))
    return yaml_text(path)


app = noun_app("frameworks", "frameworks", _rows, _show, frameworks, "ideal")
