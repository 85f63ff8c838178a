"""Flex attention (arXiv 2412.05496) in a recording: one operator that says what its functions do to the scores.

PyTorch records it neither without memory nor, in training, on the CPU. `mask_mod` and `score_mod` are functions of
places, so they are asked at some: which keys each query sees, and whether scores are changed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Value = Any  # tensors and what torch's functions take and return; torch is optional, so it is not named

_NAME = "phaze::flex_attention"
_SCHEMA = "(Tensor query, Tensor key, Tensor value, bool is_causal, int window, bool scored) -> Tensor"
_ASKED = 64
"""Queries that functions are asked about, evenly spaced, with all keys; and so many keys around the last of them."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What is known of the scores: `window` is the number of keys that a query sees at most, 0 for all of them."""

    causal: bool = False
    window: int = 0
    scored: bool = False


@contextmanager
def recorded_as_one(torch: ModuleType) -> Iterator[None]:
    """Let `flex_attention` be one operator. Its name may be anywhere by now, so the function keeps its identity."""
    try:
        home = importlib.import_module("torch.nn.attention.flex_attention")
    except ImportError:  # versions before 2.5
        yield
        return
    operator = _operator(torch)

    def stand_in(query: Value, key: Value, value: Value, *others: Value, **named: Value) -> Value:
        told = dict(zip(("score_mod", "block_mask"), others, strict=False)) | named
        with _outside(torch):
            found = _asked(torch, query.shape[-2], key.shape[-2], told)
        made = operator(query, key, value, found.causal, found.window, found.scored)
        rows = torch.empty(made.shape[:-1], dtype=torch.float32, device=made.device)
        if named.get("return_aux") is not None:
            return made, home.AuxOutput(lse=rows, max_scores=rows)
        return (made, rows) if named.get("return_lse") else made

    function = home.flex_attention
    before, setattr_name = function.__code__, "_phaze_stand_in"
    defaults, keywords = function.__defaults__, function.__kwdefaults__
    setattr(home, setattr_name, stand_in)
    function.__code__ = _forward.__code__
    function.__defaults__, function.__kwdefaults__ = None, None
    try:
        yield
    finally:
        function.__code__ = before
        function.__defaults__, function.__kwdefaults__ = defaults, keywords
        delattr(home, setattr_name)


def _forward(*args: Value, **named: Value) -> Value:
    """What stands in the place of the function's own code, in whose module the name is."""
    return _phaze_stand_in(*args, **named)  # type: ignore[name-defined]  # noqa: F821


def _operator(torch: ModuleType) -> Callable[..., Value]:
    """The operator, known to torch once; of a tensor it says the shape alone."""
    if not hasattr(torch.ops.phaze, "flex_attention"):
        torch.library.define(_NAME, _SCHEMA)

        def shaped(query: Value, key: Value, value: Value, *_: Value) -> Value:
            return query.new_empty((*query.shape[:-1], value.shape[-1]))

        torch.library.register_fake(_NAME, shaped)
    found: Callable[..., Value] = torch.ops.phaze.flex_attention
    return found


@contextmanager
def _outside(torch: ModuleType) -> Iterator[None]:
    """Beside the recording: with memory, on the CPU."""
    modes = importlib.import_module("torch.utils._python_dispatch")
    with (
        modes._disable_current_modes(),
        torch._C.DisableTorchFunctionSubclass(),
        torch.device("cpu"),
        torch.no_grad(),
    ):
        yield


def _asked(torch: ModuleType, queries: int, keys: int, told: dict[str, Value]) -> Scores:
    """What both functions say; one that cannot be asked, for it reads tensors of the recording, hides nothing."""
    rows = torch.linspace(0, queries - 1, min(_ASKED, queries)).long()[:, None]
    columns, first = torch.arange(keys)[None, :], torch.zeros((), dtype=torch.long)
    seen = torch.ones((len(rows), keys), dtype=torch.bool)
    scored, mask, change = False, told.get("block_mask"), told.get("score_mod")
    try:
        if mask is not None:
            seen = seen & mask.mask_mod(first, first, rows, columns)
        if change is not None:
            changed = change(torch.ones(seen.shape), first, first, rows, columns).expand(seen.shape)
            hidden = changed == -float("inf")
            seen, scored = seen & ~hidden, bool((changed[~hidden] != 1).any())
    except (RuntimeError, TypeError, IndexError):
        return Scores(scored=change is not None)
    return _shape_of(torch, seen, rows + (keys - queries), columns, scored=scored)


def _shape_of(torch: ModuleType, seen: Value, rows: Value, columns: Value, *, scored: bool) -> Scores:
    """Whether queries see all keys, those up to their own place, or only so many of these."""
    if bool(seen.all()):
        return Scores(scored=scored)
    causal = columns <= rows
    if bool((seen == causal).all()):
        return Scores(causal=True, scored=scored)
    window = int(seen.sum(1).max())
    if bool((seen == (causal & (columns > rows - window))).all()):
        return Scores(causal=True, window=window, scored=scored)
    return Scores(scored=scored)
