"""Llama models of 1 to 8 billion parameters that nanotron trained on 8 to 512 H100 (Ultra-Scale Playbook): time of an
iteration, peak memory, and which runs crashed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.derived_figures import GIB, hbm_capacity_bytes
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.training.iteration import MemoryBreakdown
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import network_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import decoder
from phaze.validation.measured.published_runs import PublishedRun, PublishedRuns, RunGroup, estimator
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Workload

CRASHED = "crashed: nothing was measured"
EMPTY_STAGE = "the framework's division leaves a device without a layer: the run cannot start"
LOSS_APART = "the framework's division has the loss on another device than the head"
SLOW = "twice as long as the same layout takes for as many samples in another run: a slow node or network"
HOST_LATE = "the device waits for the host at every exchange, told by its memory: no operand is still in use"

_SLOW = 2.0
"""Over the best run of a layout; equal runs that go well differ by a few percent."""
_LATE = 1.25
"""Over the time that the plan takes, where the host does not run ahead of the device."""
_TOLD = 1.1
"""Least ratio of the memory with and without gathered operands where the one that is nearer can be told."""
_NETWORK = "p5-h100"

_Cells = Mapping[str, str]


def times(columns: Columns) -> Judged:
    """Seconds per iteration."""
    runs, slow = PublishedRuns(), _slow_rows(columns)
    for row, one in enumerate(_rows(columns)):
        if (why := one.refusal or (SLOW if row in slow else None)) is not None:
            runs.drop(why)
        elif one.keeps_none:
            runs.drop(HOST_LATE)
        else:
            runs.keep(one.run(float(one.cells["step_s"])))
    return runs.judge()


def memory(columns: Columns) -> Judged:
    """Peak bytes that PyTorch holds on the device that writes them down, one of the first stage."""
    slow, kept, excluded = _slow_rows(columns), [], defaultdict[str, int](int)
    for row, one in enumerate(_rows(columns)):
        if one.crashed or one.stages is None:
            excluded[CRASHED if one.crashed else EMPTY_STAGE] += 1
        else:
            held = one.held_bytes(ahead=row not in slow and not one.late)
            if held > _capacity_bytes():  # it ran, so nothing waited
                held = one.held_bytes(ahead=False)
            kept.append((float(one.cells["peak_memory_gb"]) * GIB, held))
    measured, predicted = np.array(kept, dtype=np.float64).reshape(-1, 2).T
    return Judged(measured, {Fidelity.ANALYTIC: predicted, Fidelity.CALIBRATED: predicted}, dict(excluded))


def fits(columns: Columns) -> Judged:
    """Whether a run had memory enough, 1 or 0: what crashed counts as none, by whatever cause."""
    room, kept, excluded = _capacity_bytes(), [], defaultdict[str, int](int)
    for one in _rows(columns):
        if one.stages is None:
            excluded[EMPTY_STAGE] += 1
        else:
            needed = max(*one.devices_bytes(one.version()), one.held_bytes(ahead=True))
            kept.append((not one.crashed, needed <= room))
    measured, predicted = np.array(kept, dtype=np.float64).reshape(-1, 2).T
    return Judged(measured, {Fidelity.ANALYTIC: predicted, Fidelity.CALIBRATED: predicted}, dict(excluded))


@lru_cache(maxsize=1)
def _chip() -> Architecture:
    return load_architecture("h100")


@lru_cache(maxsize=1)
def _capacity_bytes() -> float:
    """What plans may fill of a device."""
    return load_framework("nanotron-2025").usable_bytes(float(hbm_capacity_bytes(to_table([_chip()]))[0]))


@dataclass(frozen=True)
class _Row:
    """One row; `known`: estimators that rows of one model on as many devices share."""

    cells: _Cells
    known: dict[RunGroup, Estimator]

    def size(self, name: str) -> int:
        return int(self.cells[name])

    @property
    def crashed(self) -> bool:
        return self.cells["status"] != "measured"

    @property
    def stages(self) -> tuple[int, ...] | None:
        """Blocks on every device up to that with the head; None where a device has no module at all."""
        block = 4 * self.size("hidden") ** 2 + 3 * self.size("ffn") * self.size("hidden")
        head = self.size("vocab") * self.size("hidden") / block
        return stages_of(self.size("layers"), head, self.size("pp"))

    @property
    def refusal(self) -> str | None:
        """Why its time says nothing of the plan that the row states."""
        if self.crashed:
            return CRASHED
        if self.stages is None:
            return EMPTY_STAGE
        return LOSS_APART if len(self.stages) < self.size("pp") else None

    def version(self, *, keeps: bool | None = None) -> Framework:
        """The software, with pipelines as in the runs that its authors repeated; `keeps`: whether gathered operands."""
        name = "nanotron-2025" if self.size("pp") == 1 else "nanotron-2025-pipelines"
        return _version(name, keeps=keeps)

    @property
    def keeps_none(self) -> bool:
        """Whether its memory is nearer to that without any gathered operand than to that with all of them."""
        kept, none = (max(self.devices_bytes(self.version(keeps=keeps))) for keeps in (True, False))
        measured = float(self.cells["peak_memory_gb"]) * GIB
        nearer = abs(math.log(none / measured)) < abs(math.log(kept / measured))
        return kept > _TOLD * none and nearer

    @property
    def late(self) -> bool:
        """Whether it takes much longer than the version that keeps gathered operands does."""
        run = self.run(float(self.cells["step_s"]))
        found = estimator(run, Fidelity.CALIBRATED, self.known).iteration(run.strategy)
        return run.measured > _LATE * found.iteration_s

    def devices_bytes(self, framework: Framework) -> list[float]:
        """Memory of a device of every stage that has a block or the head."""
        return [device.total_bytes + self._apart_bytes(device) for device in self._devices(framework)]

    def held_bytes(self, *, ahead: bool) -> float:
        """Peak memory that PyTorch holds on a device of the first stage, whether or not the host runs ahead of it.

        A gathered operand is freed by the host, which is ahead of the device, and its memory can serve again only after
        the exchange on its own stream has ended. Held are those of the microbatches that fill a pipeline but for one,
        and of one more where no device waits for its host.
        """
        if self.size("pp") == 1:
            return self.devices_bytes(self.version(keeps=ahead))[0]
        needed = self.devices_bytes(self.version(keeps=False))[0]
        return needed + ahead * self._waiting_microbatches * self._gathered_bytes

    def _devices(self, framework: Framework) -> tuple[MemoryBreakdown, ...]:
        run = self.run(math.nan, framework)
        return estimator(run, Fidelity.CALIBRATED, self.known).memory(run.strategy)

    def _apart_bytes(self, device: MemoryBreakdown) -> float:
        """Activations of one more microbatch, which a stage with nothing but the loss keeps in flight on the others."""
        modelled = self._in_flight(len(self.stages or ()))
        return device.activations_bytes * (self._in_flight(self.size("pp")) / modelled - 1.0)

    def _in_flight(self, stages: int) -> int:
        """Microbatches that the first of so many stages keeps."""
        return min(stages, self.size("global_batch") // (self.size("dp") * self.size("micro_batch")))

    @property
    def _waiting_microbatches(self) -> int:
        run = self.run(math.nan, self.version(keeps=False))
        found = estimator(run, Fidelity.CALIBRATED, self.known).stage_times(run.strategy)
        waits = found.forward.host_s[0] + found.backward.host_s[0] > 0.0
        return max(self._in_flight(self.size("pp")) - 2, 0) + (not waits)

    @property
    def _gathered_bytes(self) -> float:
        """Operands of one microbatch that the first stage gathers, without a device's own part."""
        kept, none = (self._devices(self.version(keeps=keeps))[0] for keeps in (True, False))
        lost = 1.0 + self.version().fragmentation
        return (kept.activations_bytes - none.activations_bytes) / (
            lost * self._in_flight(len(self.stages or ()))
        )

    def run(self, measured: float, framework: Framework | None = None) -> PublishedRun:
        """The run as the model sees it."""
        framework, stages = framework or self.version(), self.stages or ()
        cluster = Cluster(self.size("gpus"), self.size("global_batch"), network_of(_NETWORK))
        tensor = self.size("tp")
        plan = ParallelPlan(
            microbatch=self.size("micro_batch"),
            data_parallel=self.size("dp"),
            pipeline_parallel=len(stages),
            sharding=Sharding(tensor, tensor > 1),
            zero=Zero.OPTIMIZER if self.size("zero_stage") else Zero.NONE,
            stages=stages if len(stages) > 1 else (),
        )
        return PublishedRun(_chip(), self._workload(framework), cluster, framework, plan, measured)

    def _workload(self, framework: Framework) -> Workload:
        sizes = tuple(self.size(name) for name in ("layers", "hidden", "ffn", "heads", "vocab"))
        return _llama(sizes, self.size("sequence_length"), self.cells["tied_embeddings"] == "yes", framework)


def _rows(columns: Columns) -> Iterable[_Row]:
    known: dict[RunGroup, Estimator] = {}
    for row in range(columns.rows):
        yield _Row({name: columns[name][row] for name in columns.text}, known)


@lru_cache(maxsize=8)
def _version(name: str, *, keeps: bool | None) -> Framework:
    found = load_framework(name)
    return found if keeps is None else found.model_copy(update={"keeps_gathered": keeps})


@lru_cache(maxsize=64)
def _llama(sizes: tuple[int, ...], tokens: int, tied: bool, framework: Framework) -> Workload:
    layers, hidden, ffn, heads, vocabulary = sizes
    dimensions = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "ffn_hidden": ffn,
        "vocabulary": vocabulary,
        "max_positions": tokens,
        "gated": True,
        "activation": "silu",
        "norm": "rms",
        "norm_place": "pre",
        "bias": False,
        "positions": "rope",
        "tied_embeddings": tied,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
    return decoder(dimensions, tokens, framework.attention, framework.fusion, "bf16")


def stages_of(blocks: int, head: float, stages: int) -> tuple[int, ...] | None:
    """Blocks on every device up to that with the head, which costs as much as so many of them.

    A module goes to the next device once what lies before it exceeds that device's even share (build_model of
    nanotron, models/base.py). Modules: embedding, blocks, norm, head, cast, loss. None where a device has none.
    """
    costs = [0.0, *(1.0 for _ in range(blocks)), 0.0, head, 0.0, 0.0]
    found: list[list[int]] = [[] for _ in range(stages)]
    done, at = 0.0, 0
    for module, cost in enumerate(costs):
        found[at].append(module)
        done += cost
        at += done > sum(costs) * (at + 1) / stages
    if not all(found):
        return None
    last = next(place for place, modules in enumerate(found) if blocks + 2 in modules)
    return tuple(sum(1 <= module <= blocks for module in modules) for modules in found[: last + 1])


def _slow_rows(columns: Columns) -> set[int]:
    """Rows whose microbatches take `_SLOW` times what another run of the same layout shows to be enough.

    A microbatch takes at most as long as a larger one, and as many times longer than a smaller one as it is larger.
    """
    seconds: dict[int, float] = {}
    layouts: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, status in enumerate(columns["status"]):
        if status == "measured":
            layouts[tuple(columns[name][row] for name in ("model", "tp", "pp"))].append(row)
            seconds[row] = _pass_s(columns, row)
    each = columns.numbers("micro_batch")
    return {
        row
        for rows in layouts.values()
        for row in rows
        if seconds[row] > _SLOW * _enough(row, rows, seconds, each)
    }


def _enough(row: int, rows: Sequence[int], seconds: Mapping[int, float], each: np.ndarray) -> float:
    return min(seconds[other] * max(1.0, float(each[row] / each[other])) for other in rows)


def _pass_s(columns: Columns, row: int) -> float:
    """Seconds of an iteration for each microbatch and each stage that waits for the first one."""
    batch, each, replicas, stages = (
        int(columns[name][row]) for name in ("global_batch", "micro_batch", "dp", "pp")
    )
    return float(columns["step_s"][row]) / (batch / (each * replicas) + stages - 1)
