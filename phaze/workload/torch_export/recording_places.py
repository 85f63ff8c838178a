"""Where a module is recorded: without a sound or lines of source, its weights where they are, or as if on the CPU."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from io import StringIO
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

FakeMode = Any  # torch._subclasses.fake_tensor.FakeTensorMode; torch is optional, so it is not named
Module = Any  # torch.nn.Module


@contextmanager
def silence() -> Iterator[None]:
    """Let torch keep what it would print of a module that it cannot record: errors say it in one sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def kept_where_alike(torch: ModuleType) -> Iterator[None]:
    """Let `module.to` do nothing where all weights are as it asks: a recording cannot put others in their place."""
    before = torch.nn.Module.to

    def to(module: Module, *args: object, **named: object) -> Module:
        device, kind, _, _ = torch._C._nn._parse_to(*args, **named)
        alike = all(
            device in {None, weight.device} and kind in {None, weight.dtype}
            for weight in chain(module.parameters(), module.buffers())
        )
        return module if alike else before(module, *args, **named)

    torch.nn.Module.to = to
    try:
        yield
    finally:
        torch.nn.Module.to = before


@contextmanager
def without_source_lines() -> Iterator[None]:
    """Let nodes not say which lines made them, which nobody reads here: a fifth of what a recording takes."""
    config = importlib.import_module("torch.fx.config")
    name = "do_not_emit_stack_traces"
    before = getattr(config, name, None)
    if before is None:  # versions that always say so
        yield
        return
    setattr(config, name, True)
    try:
        yield
    finally:
        setattr(config, name, before)


def as_if_on_cpu(torch: ModuleType, module: torch.nn.Module) -> tuple[torch.nn.Module, FakeMode]:
    """A copy of a module without memory whose weights say that they lie on the CPU, and the mode that they live in.

    For modules that put values of their own there, whatever device they are built on.
    """
    fakes = importlib.import_module("torch._subclasses.fake_tensor")
    mode, copied = fakes.FakeTensorMode(allow_non_fake_inputs=True), deepcopy(module)
    moved: dict[int, object] = {}
    with mode:  # no setter takes tensors of modes, so they are put where modules keep theirs
        for table in (table for part in copied.modules() for table in (part._parameters, part._buffers)):
            for key, value in table.items():
                if value is not None and value.device.type == "meta":
                    if id(value) not in moved:
                        moved[id(value)] = _on_cpu(torch, value)
                    table[key] = moved[id(value)]
    return copied, mode


def _on_cpu(torch: ModuleType, value: torch.Tensor) -> torch.Tensor:
    """A tensor (or parameter) like another one, on the CPU."""
    made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")
    if not isinstance(value, torch.nn.Parameter):
        return made
    return torch.nn.Parameter(made, requires_grad=value.requires_grad)
