"""What a module decides by the content of tensors while it is recorded, and what stands in for it.

Nothing has content then. A truth value is what the user says of all of them (`branch`); loads of experts, counts by
which rows are split, are taken as equal. Anything else stays unknown: whatever touches it fails.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

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
        self._note("loads as balanced")
        each, more = divmod(rows, count)
        return [each + (i < more) for i in range(count)]

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
def deciding(torch: ModuleType, decisions: Decisions) -> Iterator[None]:
    """Answer in place of tensors without content, inside the block."""

    base: Any = torch.overrides.TorchFunctionMode

    class Answers(base):  # type: ignore[misc]
        def __torch_function__(
            self,
            function: Value,
            types: Sequence[type],
            args: Sequence[Value] = (),
            kwargs: Mapping[str, Value] | None = None,
        ) -> Value:
            name, named = getattr(function, "__name__", ""), dict(kwargs or {})
            if name in _TRUTHS and args[0].dtype == torch.bool and decisions.branch is not None:
                return decisions.truth()
            if (
                name in {"item", "tolist"}
                and not args[0].dtype.is_floating_point
                and args[0].dtype != torch.bool
            ):
                shape = args[0].shape
                if name == "item" or len(shape) == 1:
                    return [_Count() for _ in range(shape[0])] if name == "tolist" else _Count()
            sizes: Any = named.get("split_size_or_sections", args[1] if len(args) > 1 else None)
            if name == "split" and _are_counts(sizes):
                axis = named.get("dim", args[2] if len(args) > 2 else 0)
                equal = decisions.parts(args[0].shape[axis], len(sizes))
                return function(args[0], equal, dim=axis)
            return function(*args, **named)

    with Answers():
        yield


def _are_counts(sizes: object) -> bool:
    return isinstance(sizes, list | tuple) and bool(sizes) and all(isinstance(s, _Count) for s in sizes)
