"""Instances that how-to pages show, as a reader would copy them."""

from __future__ import annotations

import json
import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def page_instance(name, number=0):
    """A JSON block of a page, the first where no other is asked for."""
    texts = re.findall(r"```json\n(.*?)```", (PAGES / name).read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(texts[number])
