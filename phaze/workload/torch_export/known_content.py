"""Content of tensors that a recording knows: masks that are full, positions, and what follows from them alone.

A recorded module has tensors without memory, so what it decides by their content is unknown. What it makes itself out
of numbers (`arange`, `ones`), and masks of which the user's example shows that nothing is left out, is known: such
tensors are worked out beside the recording, on the CPU, and answer for those that are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

Value = Any  # tensors and what torch's functions take and return; torch is optional, so it is not named

LARGEST = 1_000_000
"""Elements of the largest tensor that is worked out: a mask of a thousand tokens by as many."""

_FACTORIES = frozenset(
    {"arange", "as_tensor", "eye", "full", "linspace", "ones", "scalar_tensor", "tensor", "zeros"}
)
_LIKE = {
    **dict.fromkeys(
        ("full_like", "new_full", "new_ones", "new_tensor", "new_zeros", "ones_like", "zeros_like"), 0
    ),
    **dict.fromkeys(("expand_as", "reshape_as", "to", "type_as", "view_as"), 1),
}
"""Functions that read of one of their tensors (by its place) only what it is like."""
_MADE = _FACTORIES | {name for name, place in _LIKE.items() if place == 0}
_UNKNOWN = (
    "rand",
    "normal",
    "multinomial",
    "bernoulli",
    "dropout",
    "empty",
    "poisson",
    "exponential",
    "uniform",
)
_SIZED_BY_CONTENT = frozenset(
    {"masked_select", "nonzero", "repeat_interleave", "unique", "unique_consecutive"}
)
_INDEXED = frozenset({"__getitem__", "index"})
_SCALARS: Mapping[str, Callable[[Value], Value]] = {
    "__bool__": bool,
    "__float__": float,
    "__format__": lambda value: value,
    "__index__": int,
    "__int__": int,
    "item": lambda value: value.item(),
    "tolist": lambda value: value.tolist(),
}


@dataclass
class KnownContent:
    """Tensors on the CPU that stand for those of a recording, as `torch` works them out."""

    torch: ModuleType
    stale: dict[int, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with none."""
        from torch.utils.weak import WeakTensorKeyDictionary

        self._shown: Any = WeakTensorKeyDictionary()

    def of(self, tensor: Value) -> Value | None:
        """What a tensor holds; None where that is not known."""
        found = self._shown.get(tensor)
        return None if found is None or found.untyped_storage()._cdata in self.stale else found

    def fill(self, tensor: Value, number: int) -> None:
        """Take every element of a tensor to be a number."""
        if tensor.numel() <= LARGEST:
            with self._apart():
                self._shown[tensor] = self.torch.full(tuple(tensor.shape), number, dtype=tensor.dtype)

    def answer(
        self, function: Value, name: str, args: Sequence[Value], named: Mapping[str, Value]
    ) -> tuple[Value] | None:
        """What a function gives, where it asks for content that is known; None where it is to be called as it is."""
        given = list(self._tensors((args, named)))
        if name in _SCALARS and given and (known := self.of(args[0])) is not None:
            with self._apart():
                return (
                    (format(known.item(), *args[1:]),) if name == "__format__" else (_SCALARS[name](known),)
                )
        if name == "__iter__" and self.of(args[0]) is not None:
            parts = args[0].unbind(0)
            self.follow(self.torch.unbind, "unbind", args[:1], {}, parts)
            return (iter(parts),)
        by_mask = name in _INDEXED and any(t.dtype == self.torch.bool for t in self._tensors(args[1:]))
        picks = by_mask or name in _SIZED_BY_CONTENT or (name == "where" and len(args) == 1)
        if not given or not picks:
            return None
        if all(self.of(tensor) is not None for tensor in given):
            return (self._recorded(self._worked_out(function, args, named), given[0].device),)
        if by_mask:
            places = self._places(args[1])
            return None if places is None else (function(args[0], places, **named),)
        return None

    def follow(
        self, function: Value, name: str, args: Sequence[Value], named: Mapping[str, Value], result: Value
    ) -> None:
        """Work out what a function has given or changed, where all that it read is known; forget it otherwise."""
        changes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or "out" in named
        made = list(self._tensors(result))
        if not changes and not made:
            return
        given = list(self._tensors((args, named)))
        read = [t for t in given if not (name in _LIKE and t is given[min(_LIKE[name], len(given) - 1)])]
        known = all(self.of(tensor) is not None for tensor in read) and (bool(read) or name in _MADE)
        small = all(tensor.numel() <= LARGEST for tensor in (*made, *given))
        if known and small and not any(part in name for part in _UNKNOWN):
            with suppress(Exception):  # whatever cannot be worked out on the CPU stays unknown
                contents = list(self._tensors(self._worked_out(function, args, named)))
                for tensor, content in zip(made, contents, strict=True):
                    self._shown[tensor] = content
                return
        if changes and given and (before := self.of(given[0])) is not None:
            storage = before.untyped_storage()
            self.stale[storage._cdata] = storage  # kept, so that no other takes its place

    def _worked_out(self, function: Value, args: Sequence[Value], named: Mapping[str, Value]) -> Value:
        with self._apart():
            return function(*self._shadows(args), **self._shadows(dict(named)))

    def _recorded(self, content: Value, device: Value) -> Value:
        """Tensors of a recording, of the sizes that some content has."""
        if isinstance(content, tuple | list):
            return tuple(self._recorded(part, device) for part in content)
        made = self.torch.zeros(tuple(content.shape), dtype=content.dtype, device=device)
        self._shown[made] = content
        return made

    def _places(self, index: Value) -> Value | None:
        """An index with the places that known masks pick instead of them; None where one is unknown."""
        parts = []
        for part in index if isinstance(index, tuple | list) else (index,):
            if isinstance(part, self.torch.Tensor) and part.dtype == self.torch.bool:
                if (known := self.of(part)) is None:
                    return None
                with self._apart():
                    picked = known.nonzero(as_tuple=True)
                parts += [self._recorded(each, part.device) for each in picked]
            else:
                parts.append(part)
        return tuple(parts)

    def _shadows(self, value: Value) -> Value:
        """Arguments on the CPU; where content is unknown, which is then not read, any of the same size."""
        if isinstance(value, self.torch.Tensor):
            known = self.of(value)
            return self.torch.zeros((), dtype=value.dtype).expand(value.shape) if known is None else known
        if isinstance(value, dict):
            return {
                key: "cpu" if key == "device" and each is not None else self._shadows(each)
                for key, each in value.items()
            }
        if isinstance(value, self.torch.device):
            return self.torch.device("cpu")
        if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
            return type(value)(self._shadows(each) for each in value)
        return value

    def _tensors(self, value: Value) -> Iterator[Value]:
        if isinstance(value, self.torch.Tensor):
            yield value
        elif isinstance(value, Mapping):
            for each in value.values():
                yield from self._tensors(each)
        elif isinstance(value, tuple | list):
            for each in value:
                yield from self._tensors(each)

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Calculate beside whatever is recording."""
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes(), self.torch._C.DisableTorchFunction(), self.torch.no_grad():
            yield


def full_masks(torch: ModuleType, arguments: Iterable[tuple[int | str, object]]) -> Set[int | str]:
    """Arguments, by position or name, that are masks (truth values, or called so) with content that is all ones."""
    return frozenset(
        key
        for key, value in arguments
        if isinstance(value, torch.Tensor)
        and value.device.type != "meta"
        and (value.dtype == torch.bool or ("mask" in str(key) and not value.is_floating_point()))
        and value.dim() > 0
        and bool((value == 1).all())
    )
