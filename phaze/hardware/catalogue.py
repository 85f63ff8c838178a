"""Find architectures, spaces and networks: packaged ones by name, a user's own by path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from importlib.resources import files
from pathlib import Path

from phaze.errors import InputError
from phaze.plugins import FileRegistry, name_key


class Catalogue(StrEnum):
    """Kind of catalogue entry; the value is the folder below the packaged templates."""

    ARCHITECTURE = "."
    SPACE = "spaces"
    NETWORK = "networks"
    FRAMEWORK = "frameworks"
    PLAN_SPACE = "plans"
    FAILURE = "failures"
    ENGINE = "engines"


def packaged(catalogue: Catalogue) -> dict[str, Path]:
    """Packaged files by name, sorted."""
    folder = Path(str(files("phaze.arch_templates"))) / catalogue.value
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def registry(catalogue: Catalogue) -> FileRegistry:
    """The files of a kind, ours and those of other distributions: in the group `phaze.frameworks`, for instance."""
    kind = catalogue.name.lower()
    group = "phaze.plans" if catalogue is Catalogue.PLAN_SPACE else f"phaze.{kind}s"
    return FileRegistry(group, f"{kind.replace('_', ' ')}s", partial(packaged, catalogue))


def find(
    catalogue: Catalogue, name_or_path: str | Path, aliases: Callable[[], Mapping[str, str]] | None = None
) -> Path:
    """The file behind a path, a name of `registry` or an alias; case, `-`, `_` and blanks in names do not matter.

    `aliases` gives alias -> name, asked only where no name fits. Raises InputError with the nearest names.
    """
    text = str(name_or_path)
    if text.endswith((".yaml", ".yml")) or "/" in text:
        return Path(text)
    key, known = name_key(text), packaged(catalogue)
    by_key = {name_key(name): path for name, path in known.items()}
    if key not in by_key:
        known |= registry(catalogue).brought()
        by_key = {name_key(name): path for name, path in known.items()}
    if key not in by_key and aliases is not None:
        by_key |= {name_key(alias): known[name] for alias, name in aliases().items()}
    if key in by_key:
        return by_key[key]
    near = difflib.get_close_matches(key, by_key, n=3, cutoff=0.4)
    what = catalogue.name.lower().replace("_", " ")
    if len(parts := re.split(r"[,\s]+", text)) > 1 and all(name_key(part) in by_key for part in parts):
        raise InputError(f"no {what} is named {text!r}; name several one by one: {' '.join(parts)}")
    names = list(dict.fromkeys(by_key[key].stem for key in near)) or list(known)
    told = f"{'near' if near else 'there are'}: {', '.join(names)}"
    if catalogue is Catalogue.ARCHITECTURE and not near:
        told = f"dse archs lists the {len(names)} there are"
    raise InputError(f"no {what} is named {text!r}; {told} (or give the path of a .yaml file)")
