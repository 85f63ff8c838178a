"""Rows that a module sorts into groups one by one: experts in a loop, each with the rows that chose it.

The choice (`one_hot`) depends on content. Groups are taken as balanced: each has rows, and as many as any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Value = Any  # tensors and what torch's functions take and return; torch is optional, so it is not named

_SAME = {
    *(
        "__and__",
        "__getitem__",
        "__mul__",
        "__rmul__",
        "bool",
        "contiguous",
        "detach",
        "flatten",
        "float",
        "index",
    ),
    *("int", "logical_and", "long", "movedim", "mul", "permute", "reshape", "select", "squeeze", "t", "to"),
    *("transpose", "type", "unsqueeze", "view"),
}
"""What leaves as large a part of a choice chosen: other places and types, and masks on it that let all of it pass."""
_POSITIVE = frozenset({"__gt__", "__ne__", "greater", "gt", "ne", "not_equal"})


@dataclass
class BalancedGroups:
    """Tensors of a recording that say which rows are in which of so many groups, and how many each has."""

    torch: ModuleType

    def __post_init__(self) -> None:
        """Begin with none."""
        from torch.utils.weak import WeakTensorKeyDictionary

        self._choices: Any = WeakTensorKeyDictionary()
        self._loads: Any = WeakTensorKeyDictionary()

    def places(self, name: str, args: Sequence[Value], named: Mapping[str, Value]) -> Value | None:
        """Where the rows of a group are, as `nonzero` of a choice, or `where` of it alone, gives; None of all else."""
        if not args or not isinstance(args[0], self.torch.Tensor) or args[0] not in self._choices:
            return None
        apart = name == "where" and len(args) == 1 and not named
        if name != "nonzero" and not apart:
            return None
        chosen = args[0]
        rows = -(-chosen.numel() // self._choices[chosen])
        places = self.torch.zeros((rows, chosen.dim()), dtype=self.torch.long, device=chosen.device)
        return places.unbind(1) if apart or named.get("as_tuple") else places

    def all_have_rows(self, name: str, args: Sequence[Value]) -> bool:
        """Whether a function asks which groups have any rows."""
        asks = name in _POSITIVE and len(args) > 1 and isinstance(args[0], self.torch.Tensor)
        return asks and args[0] in self._loads and isinstance(args[1], int) and args[1] == 0

    def follow(self, name: str, args: Sequence[Value], named: Mapping[str, Value], result: Value) -> None:
        """Note what a function says of groups."""
        if not isinstance(result, self.torch.Tensor) or not args:
            return
        if name == "one_hot":
            groups = int(named.get("num_classes", args[1] if len(args) > 1 else -1))
            if groups > 1:
                self._choices[result] = groups
            return
        of = next((t for t in args if isinstance(t, self.torch.Tensor) and t in self._choices), None)
        if of is None:
            return
        if name == "sum":
            self._loads[result] = self._choices[of]
        elif name in _SAME:
            self._choices[result] = self._choices[of]
