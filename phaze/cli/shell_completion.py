"""Completions of options' values in a shell: packaged names and known words, found with light imports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

Completer = Callable[[str], list[str]]
"""From what is typed so far to the values it may become; a shell offers files where there are none."""


def one_of(*words: str) -> Completer:
    """One of these words."""

    def complete(incomplete: str) -> list[str]:
        return _beginning(words, incomplete)

    return complete


def several_of(*words: str) -> Completer:
    """Some of these words, separated by commas, each once."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        left = [word for word in words if word not in before.split(",")]
        return [f"{before}{comma}{word}" for word in _beginning(left, last)]

    return complete


def workloads(incomplete: str) -> list[str]:
    """Built-in workloads."""
    from importlib.resources import files

    folder = Path(str(files("phaze.workloads")))
    return _beginning((path.stem for path in sorted(folder.glob("*.yaml"))), incomplete)


def _packaged(kind: str) -> Completer:
    """Templates of a kind, by the name of its catalogue."""

    def complete(incomplete: str) -> list[str]:
        from phaze.hardware.catalogue import Catalogue, packaged

        return _beginning(packaged(Catalogue[kind]), incomplete)

    return complete


archs, spaces, networks, frameworks, plans, failures, engines = map(
    _packaged, ("ARCHITECTURE", "SPACE", "NETWORK", "FRAMEWORK", "PLAN_SPACE", "FAILURE", "ENGINE")
)


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
