"""Read YAML files strictly: duplicate keys and wrong shapes are errors that name file, path and value."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from phaze.errors import InputError

Model = TypeVar("Model", bound=BaseModel)
# The C loader is an optional part of PyYAML; both give the same values, one is ten times faster.
_BASE: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_BASE):  # type: ignore[misc]
    """A safe loader to which a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build one mapping, keys checked."""
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def parse_yaml(text: str, where: str) -> object:
    """The value of a YAML text; `where` names it in errors. Raises InputError with the line."""
    try:
        value: object = yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{where}{line}: {error.problem or 'not valid YAML'}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none, endless nesting
        raise InputError(f"{where}: not valid YAML ({error})") from error
    return value


def read_yaml(path: Path) -> object:
    """The value of a YAML file. Raises InputError where it cannot be read or is not YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8") from error
    return parse_yaml(text, str(path))


def checked(model: type[Model], data: object, where: str) -> Model:
    """`data` as a model. Raises InputError with the YAML path and value of every fault, and what would do."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(_fault(model, fault) for fault in error.errors(include_url=False))
        raise InputError(f"{where}: {faults}") from error


def _fault(model: type[BaseModel], fault: Mapping[str, Any]) -> str:
    """One complaint of pydantic: path, what would be right, and the value found."""
    path = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"{path}: missing, and it has no default"
    if fault["type"] == "extra_forbidden":
        return f"{path}: no such field{_nearest(model, fault['loc'])}"
    what = fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if fault["type"] == "value_error":  # a sentence of ours, which names the values itself
        return f"{path}: {what}" if path else what
    later = ", for a later phaze-dse" if path == "schema_version" and _is_later(fault) else ""
    return f"{path or '(top level)'}: {what}, found {_short(fault['input'])}{later}"


def _is_later(fault: Mapping[str, Any]) -> bool:
    """Whether a file says that it is of a version that is not known yet."""
    found, known = fault["input"], fault.get("ctx", {}).get("expected", "")
    return isinstance(found, int) and str(known).isdigit() and found > int(known)


def _nearest(model: type[BaseModel], place: Sequence[int | str]) -> str:
    """The fields that are spelled like the last part of a path, as far as the path leads through models."""
    fields = model.model_fields
    for part in place[:-1]:
        inner = fields[part].annotation if isinstance(part, str) and part in fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return ""
        fields = inner.model_fields
    near = get_close_matches(str(place[-1]), fields, n=3, cutoff=0.5)
    return f" (nearest: {', '.join(near)})" if near else f" (fields: {', '.join(fields)})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
