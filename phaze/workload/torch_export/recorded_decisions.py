"""What a module decides by the content of tensors while it is recorded, and what stands in for it.

Nothing has content then, but for what is known of it (`known_content`). A truth value is otherwise what the user says
of all of them (`branch`); loads of experts, counts by which rows are split, are taken as equal; what a module checks of
its inputs (`torch._check`) is taken to hold. Anything else stays unknown: whatever touches it fails.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from phaze.workload.torch_export.balanced_groups import BalancedGroups
from phaze.workload.torch_export.known_content import KnownContent

Value = Any  # what torch's functions take and return; torch is optional, so it is not named
_TRUTHS = frozenset({"item", "__bool__"})


class _Count:
    """An element of a tensor of whole numbers: how many there are depends on content."""


@dataclass
class Decisions:
    """Stands in for content: `branch` for truth values, None: nothing does. `taken`: where it did, in words."""

    branch: bool | None
    taken: dict[str, None] = field(default_factory=dict)

    def truth(self) -> bool | None:
        """What is taken for a truth value here."""
        if self.branch is not None:
            self._note(f"what is decided by the content of tensors as {self.branch}")
        return self.branch

    def parts(self, rows: int, count: int) -> list[int]:
        """Rows of each of some loads: as equal as they can be."""
        self.balanced()
        each, more = divmod(rows, count)
        return [each + (i < more) for i in range(count)]

    def answer(
        self, torch: ModuleType, function: Value, name: str, args: Sequence[Value], named: Mapping[str, Value]
    ) -> tuple[Value] | None:
        """What stands for what a function gives; None where it is to be called as it is."""
        if name in _TRUTHS and args[0].dtype == torch.bool:
            truth = True if _checking(torch) else self.truth()
            return None if truth is None else (truth,)
        if name in {"item", "tolist"} and not args[0].dtype.is_floating_point and args[0].dtype != torch.bool:
            shape = args[0].shape
            if name == "item" or len(shape) == 1:
                return ([_Count() for _ in range(shape[0])] if name == "tolist" else _Count(),)
        sizes: Any = named.get("split_size_or_sections", args[1] if len(args) > 1 else None)
        if name == "split" and _are_counts(sizes):
            axis = named.get("dim", args[2] if len(args) > 2 else 0)
            return (function(args[0], self.parts(args[0].shape[axis], len(sizes)), dim=axis),)
        return None

    def balanced(self) -> None:
        """Note that groups are taken to have as many rows as each other."""
        self._note("loads as balanced")

    def _note(self, what: str) -> None:
        self.taken[f"{what}{_outside(traceback.extract_stack())}"] = None


def place_of(fault: Exception) -> str:
    """Function and line, in brackets, of the code closest to a fault that is not torch's own; empty if none is."""
    return _outside(traceback.extract_tb(fault.__traceback__))


def _outside(frames: Sequence[traceback.FrameSummary]) -> str:
    """The innermost frame that is neither of torch nor of this package."""
    own = (str(Path(__file__).parent) + os.sep, f"{os.sep}torch{os.sep}", "<")
    found = next((f for f in reversed(frames) if not any(part in f.filename for part in own)), None)
    return "" if found is None else f" (in {found.name}, line {found.lineno} of {Path(found.filename).name})"


@contextmanager
def deciding(
    torch: ModuleType, decisions: Decisions, module: Value = None, full: Set[int | str] = frozenset()
) -> Iterator[None]:
    """Answer in place of tensors without content, inside the block.

    `full`: arguments of a module, by position or name, that are masks which leave nothing out.
    """
    known, groups = KnownContent(torch), BalancedGroups(torch)

    def told(_: Value, given: Sequence[Value], named: Mapping[str, Value]) -> None:
        for key, value in (*enumerate(given), *named.items()):
            if key in full:
                known.fill(value, 1)

    base: Any = torch.overrides.TorchFunctionMode

    class Answers(base):  # type: ignore[misc]
        def __torch_function__(
            self,
            function: Value,
            types: Sequence[type],
            args: Sequence[Value] = (),
            kwargs: Mapping[str, Value] | None = None,
        ) -> Value:
            name, named = _name(function), dict(kwargs or {})
            found = known.answer(function, name, args, named)
            if found is None and (places := groups.places(name, args, named)) is not None:
                decisions.balanced()
                return places
            found = found or decisions.answer(torch, function, name, args, named)
            if found is not None:
                return found[0]
            result = function(*args, **named)
            known.follow(function, name, args, named, result)
            groups.follow(name, args, named, result)
            if groups.all_have_rows(name, args):
                known.fill(result, 1)
            return result

    hook = module.register_forward_pre_hook(told, with_kwargs=True) if full else None
    try:
        with Answers(), _checks_hold(torch):
            yield
    finally:
        if hook is not None:
            hook.remove()


@contextmanager
def _checks_hold(torch: ModuleType) -> Iterator[None]:
    """Let checks of modules pass, such as that a text has as many places for a sound as the sound has tokens.

    torch's own, of sizes, are made.
    """
    checks: Any = torch
    before = checks._check_with

    def check(error_type: type[Exception], condition: Value, message: Value = None) -> None:
        if condition is False and f"{os.sep}torch{os.sep}" not in _caller(torch.__file__):
            return
        before(error_type, condition, message)

    checks._check_with = check
    try:
        yield
    finally:
        checks._check_with = before


def _checking(torch: ModuleType) -> bool:
    """Whether torch checks a condition for a module."""
    return any(f.name == "_check_tensor_all_with" and f.filename == torch.__file__ for f in _innermost(8))


def _innermost(frames: int) -> Sequence[traceback.FrameSummary]:
    return traceback.extract_stack(limit=frames)


def _caller(file: str | None) -> str:
    """File of the innermost frame that is neither in this one nor in another."""
    return next(f.filename for f in reversed(_innermost(8)) if f.filename not in {file, __file__})


def _name(function: Value) -> str:
    """What a function of torch is called, without the overload of an operator."""
    name = str(getattr(function, "__name__", ""))
    return name if name.startswith("__") else name.partition(".")[0]


def _are_counts(sizes: object) -> bool:
    return isinstance(sizes, list | tuple) and bool(sizes) and all(isinstance(s, _Count) for s in sizes)
