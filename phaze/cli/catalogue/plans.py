"""`dse plans`: the spaces of plans, for `--plans`."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.cli.catalogue.noun_commands import Row, noun_app
from phaze.cli.shell_completion import plans


def _rows() -> Sequence[Row]:
    from phaze.api.catalogue_verbs import plans

    return plans().rows


def _show(name: str) -> str:
    from phaze.hardware.catalogue import Catalogue, find
    from phaze.parallel.plan_choices import load_plans
    from phaze.yaml_file import yaml_text

    load_plans(path := find(Catalogue.PLAN_SPACE, name))
    return yaml_text(path)


app = noun_app("plans", "spaces of plans", _rows, _show, plans, "full")
