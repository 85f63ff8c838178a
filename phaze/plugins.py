"""Registries of members and of files by name: ours, then those that other distributions bring as entry points.

Entry points are read where a name is asked for that is none of ours, or where all are listed: never when a program
starts. What another distribution brings wrongly ends in a sentence that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from phaze.errors import InputError, PhazeError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


def at_hand(members: Mapping[str, T]) -> dict[str, Callable[[], T]]:
    """Members that are made already, as a registry takes its own."""
    return {name: partial(_itself, member) for name, member in members.items()}


def _itself(member: T) -> T:
    return member


def lacking(thing: object, *parts: str) -> str:
    """Which of some parts a thing does not have, as a sentence goes on; empty where it has all."""
    missing = [part for part in parts if not hasattr(thing, part)]
    return f"has no {' and no '.join(missing)}" if missing else ""


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Members of one `kind` by name.

    `group`: of the entry points that bring more of them, each an object or a class that is made without arguments.
    `fault`: what is wrong with an object under a name, as a sentence goes on; empty for a member.
    """

    group: str
    kind: str
    built_in: Mapping[str, Callable[[], T]]
    fault: Callable[[str, object], str]

    def names(self) -> tuple[str, ...]:
        """All names, ours first; nothing is imported for them. Raises InputError for a name that is taken twice."""
        return (*self.built_in, *self._brought())

    def find(self, name: str) -> T | None:
        """The member of that name, if there is one. Raises InputError for what is none."""
        if name in self.built_in:
            return self.built_in[name]()
        entry = self._brought().get(name)
        return None if entry is None else self._load(entry)

    def all(self) -> dict[str, T]:
        """All members by name, ours first. Raises InputError for what is none."""
        own = {name: make() for name, make in self.built_in.items()}
        return own | {name: self._load(entry) for name, entry in self._brought().items()}

    def version(self, name: str) -> dict[str, str]:
        """Name and version of the distribution that brings a member; nothing of ours."""
        entry = None if name in self.built_in else self._brought().get(name)
        return {entry.dist.name: entry.dist.version} if entry is not None and entry.dist is not None else {}

    @contextmanager
    def blaming(self, name: str) -> Iterator[None]:
        """While a member works: what fails in another distribution's becomes an InputError that names it."""
        try:
            yield
        except PhazeError:
            raise
        except Exception as error:
            if name in self.built_in:
                raise
            raise self.refusal(name, f"failed: {_told(error)}") from error

    def refusal(self, name: str, why: str) -> InputError:
        """An error that says what is wrong with the member of a name, and whose it is."""
        entry = None if name in self.built_in else self._brought().get(name)
        return InputError(f"{self.kind} {name!r} {why}") if entry is None else self._refusal(entry, why)

    def _brought(self) -> dict[str, EntryPoint]:
        """The entry points of other distributions, sorted by name."""
        found: dict[str, EntryPoint] = {}
        for entry in _entries(self.group):
            if entry.name in self.built_in:
                raise self._refusal(entry, "has a name that is built in: no package replaces that")
            if entry.name in found:
                raise self._refusal(
                    entry, f"has the name of one of {_owner(found[entry.name])}: uninstall one"
                )
            found[entry.name] = entry
        return found

    def _load(self, entry: EntryPoint) -> T:
        try:
            found = entry.load()
            made: Any = found() if isclass(found) else found
        except (Exception, SystemExit) as error:
            raise self._refusal(entry, f"cannot be loaded: {_told(error)}") from error
        if fault := self.fault(entry.name, made):
            raise self._refusal(entry, fault)
        member: T = made
        return member

    def _refusal(self, entry: EntryPoint, why: str) -> InputError:
        return InputError(f"{self.kind} {_of(entry, self.group)} {why}")


@dataclass(frozen=True)
class FileRegistry:
    """YAML files of one `kind` by name: ours, then those that other distributions bring.

    An entry point in the `group` names the package whose folder holds them; its own name does not matter.
    """

    group: str
    kind: str
    built_in: Callable[[], Mapping[str, Path]]

    def all(self) -> dict[str, Path]:
        """All files by name, ours first."""
        return {**self.built_in(), **self.brought()}

    def brought(self) -> dict[str, Path]:
        """Files of other distributions by name.

        Raises InputError where a package has none, and for a name that is taken.
        """
        return {name: path for name, (path, _) in self._brought().items()}

    def version(self, path: Path) -> dict[str, str]:
        """Name and version of the distribution that brings a file; nothing of ours and of a user's own."""
        for theirs, entry in self._brought().values():
            if theirs == path and entry.dist is not None:
                return {entry.dist.name: entry.dist.version}
        return {}

    def _brought(self) -> dict[str, tuple[Path, EntryPoint]]:
        own = {name_key(name) for name in self.built_in()} if (entries := _entries(self.group)) else set()
        found: dict[str, tuple[Path, EntryPoint]] = {}
        for entry in entries:
            for path in self._files(entry):
                if name_key(path.stem) in own | {name_key(name) for name in found}:
                    raise self._refusal(entry, f"brings {path.stem!r}, a name that is taken")
                found[path.stem] = path, entry
        return found

    def _files(self, entry: EntryPoint) -> list[Path]:
        """The YAML files beside each other in a package; what Python runs to find it may fail in any way."""
        from importlib.util import find_spec

        try:
            places = getattr(find_spec(entry.value), "submodule_search_locations", None) or ()
        except Exception as error:
            raise self._refusal(entry, f"cannot be found: {_told(error)}") from error
        if found := sorted(path for place in places for path in Path(place).glob("*.yaml")):
            return found
        raise self._refusal(entry, "is not a package with YAML files")

    def _refusal(self, entry: EntryPoint, why: str) -> InputError:
        return InputError(f"{self.kind} {_of(entry, self.group)} {why}")


def name_key(name: str) -> str:
    """A name without what does not matter in it: case, `-`, `_` and blanks."""
    return "".join(c for c in name.lower() if c not in "-_" and not c.isspace())


def _entries(group: str) -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda entry: (entry.name, _owner(entry)))


def _of(entry: EntryPoint, group: str) -> str:
    return f"{entry.name!r} of {_owner(entry)} (entry point {entry.value!r} in group {group})"


def _owner(entry: EntryPoint) -> str:
    return f"distribution {entry.dist.name}" if entry.dist is not None else "an unknown distribution"


def _told(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
