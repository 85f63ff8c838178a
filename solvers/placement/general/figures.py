"""Figures of every stage on every model that hold for any data-parallel degree."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from phaze.solvers.placement.general.levels import BoolArray, IntArray, Levels
from phaze.solvers.placement.general.problem import GeneralProblem, Model, Transfers

FloatArray = NDArray[np.float64]
_BLOCK = 8192


@dataclass(frozen=True)
class Figures:
    """Times and sizes of all G stages on one model, (G,) each, per device and microbatch.

    `again_s`: the backward pass with a recomputed forward pass before it; `late_s`: weight gradients, if they
    are computed apart; `largest_bytes`: parameters of the largest layer; `entering_bytes`: all edges from other
    stages; `wide`: some layer is tensor-parallel; `fed`: some edge enters.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    again_s: FloatArray
    late_s: FloatArray
    parameter_bytes: FloatArray
    largest_bytes: FloatArray
    activation_bytes: FloatArray
    entering_bytes: FloatArray
    wide: BoolArray
    fed: BoolArray


def stage_figures(problem: GeneralProblem, model: Model, levels: Levels) -> Figures:
    """Figures of all stages on one model."""
    calculator = _Calculator(problem, model)
    blocks = [
        calculator.figures(levels.member(slice(start, start + _BLOCK)))
        for start in range(0, levels.stages, _BLOCK)
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

    def figures(self, member: BoolArray) -> Figures:
        """Figures of a block of stages."""
        entering = member[:, self._target] & ~member[:, self._source]
        leaving = member[:, self._source] & ~member[:, self._target]
        parameters = np.array(self._model.parameter_bytes)
        crossing_s = (entering @ self._transfer) + (leaving @ self._transfer)
        forwards = _Pass(member, self._forward, crossing_s, self._arrivals(member, entering, self._target))
        backwards = _Pass(
            member[:, ::-1],
            self._backward[::-1],
            crossing_s,
            self._arrivals(member, leaving, self._source)[:, ::-1],
        )
        idle, recomputed = np.zeros(len(member)), member @ self._forward
        return Figures(
            forward_s=forwards.end_s(idle, self._transfers),
            backward_s=backwards.end_s(idle, self._transfers),
            again_s=backwards.end_s(recomputed, self._transfers),
            late_s=member @ self._late,
            parameter_bytes=member @ parameters,
            largest_bytes=np.where(member, parameters, 0.0).max(axis=1),
            activation_bytes=member @ np.array(self._model.activation_bytes),
            entering_bytes=entering @ self._bytes,
            wide=member @ np.array(self._model.is_tensor_parallel),
            fed=np.asarray(entering.any(axis=1)),
        )

    def _arrivals(self, member: BoolArray, crossing: BoolArray, receiver: IntArray) -> FloatArray:
        """When the inputs of each layer from other stages are there, (B, L), from the start of the pass."""
        arrival = np.zeros(member.shape)
        if self._transfers is Transfers.OVERLAPPED:
            for edge, (layer, seconds) in enumerate(zip(receiver, self._transfer, strict=True)):
                np.maximum(arrival[:, layer], crossing[:, edge] * seconds, out=arrival[:, layer])
        return arrival


@dataclass(frozen=True)
class _Pass:
    """One pass through stages: layers in running order (B, L), their latencies (L,), transfers (B,), arrivals."""

    member: BoolArray
    latency_s: FloatArray
    crossing_s: FloatArray
    arrival_s: FloatArray

    def end_s(self, start_s: FloatArray, transfers: Transfers) -> FloatArray:
        """When the last layer ends (B,), if none starts before `start_s`."""
        if transfers is not Transfers.OVERLAPPED:
            extra = self.crossing_s if transfers is Transfers.EXPOSED else 0.0
            end: FloatArray = start_s + self.member @ self.latency_s + extra
            return end
        now = start_s.copy()
        for v, latency in enumerate(self.latency_s):
            runs = self.member[:, v]
            now[runs] = np.maximum(now[runs], self.arrival_s[runs, v]) + latency
        return now
