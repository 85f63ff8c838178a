"""Read YAML files strictly: plain values alone, bounded; faults are errors that name file, path and value.

Values are built from the parser's events, never by recursion. Words are resolved as PyYAML does, but a date and a
number in base 60 are words, and so is what is tagged not read at all: the schema of a file says what belongs where.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from phaze.errors import InputError
from phaze.text_file import MIB, read_text, shortened

Model = TypeVar("Model", bound=BaseModel)
# The C parser is an optional part of PyYAML; both give the same events, one is ten times faster.
_PARSER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVERS: Mapping[str, Sequence[tuple[str, re.Pattern[str]]]] = yaml.SafeLoader.yaml_implicit_resolvers

LARGEST_BYTES = MIB
"""Of a YAML file."""
DEEPEST = 50
"""Mappings and lists inside each other."""
TOO_DEEP = f"more than {DEEPEST} mappings and lists inside each other"
MOST_VALUES = 50_000
"""In a file, what an alias stands for counted every time."""
_MOST_DIGITS = 300
_MOST_FAULTS = 8
_NO_MAPPING = {"model_type", "dict_type", "model_attributes_type"}
_WORDS = {
    "a valid tuple": "a list",
    "a valid list": "a list",
    "a valid dictionary": "a mapping",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a text",
    "a valid boolean": "true or false",
}
"""What a value must be, as pydantic says it and as we do."""
_MERGE = "<<"


class _FaultError(Exception):
    """Fault at a place of a text."""

    def __init__(self, problem: str, mark: Any) -> None:  # noqa: ANN401 - PyYAML's, which has two
        super().__init__(problem)
        self.problem, self.mark = problem, mark


class _Built(NamedTuple):
    """A value, where it begins, and how many it is with those inside; `merges`: it is the plain key <<."""

    value: Any
    mark: Any
    size: int = 1
    merges: bool = False


class _Open:
    """A mapping or a list that has not ended: what stands in it so far, keys and values in turn."""

    def __init__(self, event: Any, *, mapping: bool) -> None:  # noqa: ANN401 - an event of PyYAML
        self.anchor, self.mark, self.mapping = event.anchor, event.start_mark, mapping
        self.parts: list[_Built] = []

    def closed(self) -> _Built:
        size = 1 + sum(part.size for part in self.parts)
        return _Built(
            self._mapping() if self.mapping else [part.value for part in self.parts], self.mark, size
        )

    def _mapping(self) -> dict[Hashable, Any]:
        found: dict[Hashable, Any] = {}
        merged: dict[Hashable, Any] = {}
        for key, (value, *_) in zip(self.parts[::2], self.parts[1::2], strict=True):
            if key.merges:
                merged = self._merged(value) | merged
                continue
            if isinstance(key.value, dict | list):
                raise _FaultError("a key must be a word or a number", key.mark)
            if key.value in found:
                raise _FaultError(f"the key {short_text(key.value)} is given twice", key.mark)
            found[key.value] = value
        return merged | found

    def _merged(self, value: object) -> dict[Hashable, Any]:
        """Fields that << takes over: of a mapping, or of a list of them of which the first counts."""
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(one, dict) for one in several):
            raise _FaultError("<< takes a mapping or a list of mappings", self.mark)
        return {key: item for one in reversed(several) for key, item in one.items()}


class _Builder:
    """Builds the value of a text from its events, one after the other."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, _Built | None] = {}
        self._values = 0
        self.documents: list[Any] = []

    def take(self, event: Any) -> None:  # noqa: ANN401 - an event of PyYAML
        """One event. Raises _FaultError for what is not read."""
        if isinstance(event, yaml.ScalarEvent):
            self._add(_scalar(event), event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._anchored(event)._replace(mark=event.start_mark), None)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._start(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = self._open.pop()
            self._add(ended.closed(), ended.anchor)

    def _start(self, event: Any) -> None:  # noqa: ANN401
        _check_tag(event)
        if len(self._open) == DEEPEST:
            raise _FaultError(TOO_DEEP, event.start_mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append(_Open(event, mapping=isinstance(event, yaml.MappingStartEvent)))

    def _anchored(self, event: Any) -> _Built:  # noqa: ANN401
        found = self._anchors.get(event.anchor)
        if found is None:
            problem = "stands for what it is in" if event.anchor in self._anchors else "stands for nothing"
            raise _FaultError(f"the alias *{short_text(event.anchor)[1:-1]} {problem}", event.start_mark)
        return found

    def _add(self, built: _Built, anchor: str | None) -> None:
        if built.size > MOST_VALUES:
            raise _FaultError(f"more than {MOST_VALUES} values", built.mark)
        if anchor is not None:
            self._anchors[anchor] = built
        if self._open:
            self._open[-1].parts.append(built)
        else:
            self.documents.append(built.value)
        if len(self.documents) > 1:
            raise _FaultError("a second document begins here; a file holds one", built.mark)


def _check_tag(event: Any) -> None:  # noqa: ANN401
    if event.tag is not None:
        tag = shortened(event.tag.replace("tag:yaml.org,2002:", "!!"), 60)
        raise _FaultError(f"the tag {tag} is not read; leave it out", event.start_mark)


def _scalar(event: Any) -> _Built:  # noqa: ANN401
    """A word, a number, true, false or null."""
    _check_tag(event)
    text, mark = event.value, event.start_mark
    kind = _kind(text) if event.implicit[0] else "str"  # in quotes
    if kind in {"int", "float"} and ":" not in text:
        return _Built(_number(text.replace("_", "").lower(), kind, mark), mark)
    constants = {"null": None, "bool": text.lower() in {"yes", "true", "on"}}
    return _Built(constants.get(kind, text), mark, merges=kind == "merge")


def _kind(text: str) -> str:
    """Type that PyYAML gives a plain text: the last part of its tag."""
    found = (tag for tag, pattern in _RESOLVERS.get(text[:1], ()) if pattern.match(text))
    return next(found, "str").rpartition(":")[2]


def _number(text: str, kind: str, mark: Any) -> int | float:  # noqa: ANN401
    """A finite number; whole ones in base 2, 8 (0 in front), 10 or 16."""
    if len(text) > _MOST_DIGITS:
        raise _FaultError(f"a number of more than {_MOST_DIGITS} digits", mark)
    octal = kind == "int" and text.lstrip("+-").startswith("0") and text.lstrip("+-").isdigit()
    try:
        number = int(text, 8 if octal else 0) if kind == "int" else float(re.sub(r"\.(?=inf|nan)", "", text))
    except ValueError as error:  # 0x, 0b
        raise _FaultError(f"{text} is not a number", mark) from error
    if not math.isfinite(number):
        raise _FaultError(f"{text} is not a finite number", mark)
    return number


def parse_yaml(text: str, where: str) -> object:
    """The value of a YAML text; `where` names it in errors. Raises InputError with the line."""
    builder = _Builder()
    try:
        for event in yaml.parse(text, _PARSER):
            builder.take(event)
    except _FaultError as fault:
        raise InputError(f"{where}{_line(fault.mark)}: {fault.problem}") from fault
    except yaml.MarkedYAMLError as error:
        line = _line(error.problem_mark or error.context_mark)
        deep = "nesting depth" in (
            error.problem or ""
        )  # libyaml has a limit of its own, and meets some files first
        raise InputError(
            f"{where}{line}: {TOO_DEEP if deep else error.problem or 'not valid YAML'}"
        ) from error
    except (yaml.YAMLError, UnicodeError) as error:  # characters that no YAML may have
        raise InputError(f"{where}: not valid YAML ({shortened(str(error), 200)})") from error
    return builder.documents[0] if builder.documents else None


def _line(mark: Any) -> str:  # noqa: ANN401
    return f", line {mark.line + 1}" if mark else ""


def yaml_text(path: Path) -> str:
    """The text of a YAML file. Raises InputError where it cannot be read."""
    return read_text(path, LARGEST_BYTES)


def read_yaml(path: Path) -> object:
    """The value of a YAML file. Raises InputError where it cannot be read or is not YAML."""
    return parse_yaml(yaml_text(path), str(path))


def checked(model: type[Model], data: object, where: str) -> Model:
    """`data` as a model. Raises InputError with the YAML path and value of every fault, and what would do."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        more = [f"and {len(found) - _MOST_FAULTS} more"] if len(found) > _MOST_FAULTS else []
        faults = "; ".join([_fault(model, fault) for fault in found[:_MOST_FAULTS]] + more)
        raise InputError(f"{where}: {faults}") from error


def _fault(model: type[BaseModel], fault: Mapping[str, Any]) -> str:
    """One complaint of pydantic: path, what would be right, and the value found."""
    path = shortened(".".join(str(part) for part in fault["loc"]), 200)
    if fault["type"] == "missing":
        return f"{path}: missing, and it has no default"
    if fault["type"] == "extra_forbidden":
        return f"{path}: no such field{_nearest(model, fault['loc'])}"
    what = fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    what = reduce(lambda said, word: said.replace(*word), _WORDS.items(), what)
    if fault["type"] in _NO_MAPPING:
        what = "must be a mapping" + (" of names to values" if path else f": {_first_fields(model)}")
        return f"{path}{': ' if path else ''}{what}, found {short_text(fault['input'])}"
    if fault["type"] == "value_error":  # a sentence of ours, which names the values itself
        return f"{path}: {what}" if path else what
    later = ", for a later phaze-dse" if path == "schema_version" and _is_later(fault) else ""
    return f"{path or '(top level)'}: {what}, found {short_text(fault['input'])}{later}"


def _first_fields(model: type[BaseModel]) -> str:
    """Names that a mapping begins with, those it must have first."""
    names = sorted(model.model_fields, key=lambda name: not model.model_fields[name].is_required())
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


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


def short_text(value: object) -> str:
    """A value as Python spells it, of a long one the beginning; nothing is spelled that is not shown."""
    if value is None:
        return "nothing"
    seen = value[:60] if isinstance(value, str | list) else value
    text = repr(seen)
    return text if len(text) <= 60 else text[:57] + "..."
