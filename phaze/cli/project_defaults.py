"""Defaults of a project: options of the verbs in `phaze.toml`, or under `[tool.phaze]` of `pyproject.toml`, of the
working directory. What is typed comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

OWN, SHARED = Path("phaze.toml"), Path("pyproject.toml")
Defaults = dict[str, Any]


def project_defaults(commands: Callable[[], Any]) -> tuple[Defaults, str]:
    """Defaults by verb and option, as click takes them, and the file that they stand in (empty: there is none).

    A value at the top is that of every verb with such an option; tables are of one verb, `[plan.serving]` of one below.
    `commands`: makes all verbs, where there is such a file. Raises InputError for one that cannot be read, and for what
    no verb has.
    """
    from phaze.errors import InputError
    from phaze.inputs.named_choices import nearest

    content, file = _content()
    if not file:
        return {}, ""
    root = commands()
    everywhere = {_name(key): value for key, value in content.items() if not isinstance(value, dict)}
    known = set(_options(root))
    for key in everywhere:
        if key not in known:
            raise InputError(f"{file}: no verb has an option {key!r}{nearest(key, sorted(known))}")
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    return _of(root, everywhere, tables, file), file


def _content() -> tuple[Mapping[str, Any], str]:
    """What the file of the project says, and its name; nothing where there is no file."""
    file = OWN if OWN.is_file() else SHARED
    if not file.is_file():
        return {}, ""
    import tomllib

    from phaze.errors import InputError

    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        if file is SHARED:  # somebody else's file: its own tools complain
            return {}, ""
        raise InputError(f"{file}: cannot be read as TOML ({error})") from error
    found = content if file is OWN else content.get("tool", {}).get("phaze", {})
    return (found, str(file)) if found else ({}, "")


def _options(command: Any) -> Iterator[str]:  # noqa: ANN401
    """Names of all options of a command and of those below it."""
    yield from _own(command)
    for below in getattr(command, "commands", {}).values():
        yield from _options(below)


def _own(command: Any) -> Mapping[str, Any]:  # noqa: ANN401
    return {one.name: one for one in command.params if one.param_type_name == "option"}


def _of(command: Any, everywhere: Mapping[str, Any], told: Mapping[str, Any], file: str) -> Defaults:  # noqa: ANN401
    """Defaults of a command and of those below it. Raises InputError for what it does not have."""
    from phaze.errors import InputError
    from phaze.inputs.named_choices import nearest

    options, below = _own(command), getattr(command, "commands", {})
    given = dict(everywhere)
    for key, value in told.items():
        if not isinstance(value, dict):
            if _name(key) not in options:
                raise InputError(
                    f"{file}: {command.name} has no option {key!r}{nearest(_name(key), options)}"
                )
            given[_name(key)] = value
        elif key not in below:
            raise InputError(f"{file}: no verb is called {key!r}{nearest(key, below)}")
    found: Defaults = {
        name: _shaped(value, options[name]) for name, value in given.items() if name in options
    }
    deeper = {name: _of(one, everywhere, told.get(name, {}), file) for name, one in below.items()}
    return found | {name: some for name, some in deeper.items() if some}


def _shaped(value: object, option: Any) -> object:  # noqa: ANN401
    """One value of an option that takes several as a list."""
    return [value] if option.multiple and not isinstance(value, list) else value


def _name(key: str) -> str:
    return key.replace("-", "_")
