"""`dse plans`: the spaces of plans, for `--plans`."""

from __future__ import annotations

from phaze.cli.catalogue.noun_commands import Row, noun_app
from phaze.cli.shell_completion import plans


def _rows() -> list[Row]:
    from phaze.parallel.plan_choices import list_plans, load_plans

    return [
        {
            "name": space.name,
            "ragged": "yes" if space.ragged else "no",
            "stages": space.stages.value if space.stages else "any",
            "schedules": "all" if space.schedules is None else ", ".join(space.schedules),
            "zero": "all" if space.zero is None else ", ".join(str(int(zero)) for zero in space.zero),
        }
        for space in map(load_plans, list_plans())
    ]


def _show(name: str) -> str:
    from phaze.hardware.catalogue import Catalogue, find
    from phaze.parallel.plan_choices import load_plans
    from phaze.yaml_file import yaml_text

    load_plans(path := find(Catalogue.PLAN_SPACE, name))
    return yaml_text(path)


app = noun_app("plans", "spaces of plans", _rows, _show, plans, "full")
