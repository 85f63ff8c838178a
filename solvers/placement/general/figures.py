"""Figures of every stage on every model that hold for any data-parallel degree."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.placement.general.levels import Levels
from phaze.solvers.placement.general.problem import GeneralProblem, Model, Transfers

Passes = tuple[Floats, Floats, Floats]
# Entries of a block of stages and layers: what fits in a processor's cache.
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Figures:
    """Times and sizes of all G stages on one model, (G,) each, per device and microbatch.

    `again_s`: the backward pass with a recomputed forward pass before it; `late_s`: weight gradients, if they
    are computed apart; `largest_bytes`: parameters of the largest layer; `entering_bytes`: all edges from other
    stages; `wide`: some layer is tensor-parallel; `fed`: some edge enters.
    """

    forward_s: Floats
    backward_s: Floats
    again_s: Floats
    late_s: Floats
    parameter_bytes: Floats
    largest_bytes: Floats
    activation_bytes: Floats
    entering_bytes: Floats
    wide: Flags
    fed: Flags


def stage_figures(problem: GeneralProblem, model: Model, levels: Levels) -> Figures:
    """Figures of all stages on one model."""
    calculator = _Calculator(problem, model)
    rows = max(1, _BLOCK // levels.layers)
    blocks = [
        calculator.figures(levels.member(slice(start, start + rows)))
        for start in range(0, levels.stages, rows)
    ]
    return Figures(*(np.concatenate([getattr(b, f.name) for b in blocks]) for f in fields(Figures)))


class _Calculator:
    """Rules of placement-2.md over blocks of stages, (B, L) layers each."""

    def __init__(self, problem: GeneralProblem, model: Model) -> None:
        late = problem.schedule.zero_bubble
        weight_gradient = np.array(model.weight_gradient_s)
        self._model = model
        self._transfers = problem.conventions.transfers
        self._forward = np.array(model.forward_s)
        self._backward = np.array(model.input_gradient_s) + (0.0 if late else weight_gradient)
        self._late = weight_gradient if late else np.zeros_like(weight_gradient)
        self._source = np.array([u for u, _ in problem.edges], dtype=np.int64)
        self._target = np.array([v for _, v in problem.edges], dtype=np.int64)
        self._bytes = np.array(model.boundary_bytes, dtype=np.float64)
        self._transfer = self._bytes / problem.link_bandwidth_bytes_per_s

    def figures(self, member: Flags) -> Figures:
        """Figures of a block of stages."""
        entering = member[:, self._target] & ~member[:, self._source]
        leaving = member[:, self._source] & ~member[:, self._target]
        inside = member.astype(np.float64)
        parameters = np.array(self._model.parameter_bytes)
        passes = self._overlapped if self._transfers is Transfers.OVERLAPPED else self._one_after_another
        forward_s, backward_s, again_s = passes(member, entering, leaving)
        return Figures(
            forward_s=forward_s,
            backward_s=backward_s,
            again_s=again_s,
            late_s=inside @ self._late,
            parameter_bytes=inside @ parameters,
            largest_bytes=(inside * parameters).max(axis=1),
            activation_bytes=inside @ np.array(self._model.activation_bytes),
            entering_bytes=entering.astype(np.float64) @ self._bytes,
            wide=member @ np.array(self._model.is_tensor_parallel),
            fed=np.asarray(entering.any(axis=1)),
        )

    def _one_after_another(self, member: Flags, entering: Flags, leaving: Flags) -> Passes:
        """Forward, backward and recomputed backward passes (B,) when transfers take time of both ends, or none."""
        forward_s, backward_s = (member.astype(np.float64) @ work for work in (self._forward, self._backward))
        crossing_s = np.zeros_like(forward_s)
        if self._transfers is Transfers.EXPOSED:
            crossing_s = (entering | leaving).astype(np.float64) @ self._transfer
        return forward_s + crossing_s, backward_s + crossing_s, forward_s + backward_s + crossing_s

    def _overlapped(self, member: Flags, entering: Flags, leaving: Flags) -> Passes:
        """The same when the receiver alone waits for transfers, behind its earlier work."""
        order, idle = range(member.shape[1]), np.zeros(len(member))
        inputs_s, gradients_s = self._arrivals(entering, self._target), self._arrivals(leaving, self._source)
        recomputed_s = member.astype(np.float64) @ self._forward
        return (
            _waiting(member, self._forward, inputs_s, idle, order),
            _waiting(member, self._backward, gradients_s, idle, order[::-1]),
            _waiting(member, self._backward, gradients_s, recomputed_s, order[::-1]),
        )

    def _arrivals(self, crossing: Flags, receiver: Integers) -> Floats:
        """When the inputs of each layer from other stages are there, (L, B), from the start of the pass."""
        arrival = np.zeros((len(self._forward), len(crossing)))
        for arrives, layer, seconds in zip(crossing.T, receiver, self._transfer, strict=True):
            np.maximum(arrival[layer], arrives * seconds, out=arrival[layer])
        return arrival


def _waiting(member: Flags, latency_s: Floats, arrival_s: Floats, start_s: Floats, order: range) -> Floats:
    """When the last layer of each stage ends (B,): layers run in order, none before its inputs arrive."""
    now = start_s
    for v in order:
        now = np.where(member[:, v], np.maximum(now, arrival_s[v]) + latency_s[v], now)
    return now
