"""Measure one NVIDIA GPU: seconds, watts, clocks and temperature of kernels, training steps and decoding.

A script of its own: it needs PyTorch and nothing of phaze, so that it runs on any GPU host:

    python gpu_script.py --out DIR

Seconds are those of device events, after a warm-up: means over a loop of a second or more, in which the clock has
settled (`latency_us`), and medians of short bursts before it (`burst_us`). Kernels run from CUDA graphs, on operands of
random numbers in turn, so that the second-level cache holds none from the call before. Watts are the rise of the
board's energy counter over the settled part of a loop; where there is none, its last reading. The board's settings are
left as they are.
"""

from __future__ import annotations

import argparse
import csv
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

PARTS = ("idle", "products", "kernels", "attention", "steps", "decode")
"""What is measured, in this order."""

NO_TORCH = "measuring a GPU needs PyTorch with CUDA (pip install torch) on the machine whose GPU is measured"
NO_GPU = "no NVIDIA GPU here that PyTorch can use"

_READ = (
    "latency_us",
    "burst_us",
    "power_w",
    "reading_w",
    "sm_clock_mhz",
    "temperature_c",
    "capped",
    "loop_s",
)
"""Columns of every kernel after those that say what it is."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "gpu_idle": ("device", "state", "power_w", "sm_clock_mhz", "temperature_c", "power_limit_w", "loop_s"),
    "gpu_products": ("device", "dtype", "batch", "m", "n", "k", "power_limit_w", *_READ),
    "gpu_kernels": ("device", "op", "dtype", "rows", "cols", "power_limit_w", *_READ),
    "gpu_attention": (
        *("device", "op", "backend", "batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "causal"),
        *("power_limit_w", *_READ),
    ),
    "gpu_steps": (
        *(
            "device",
            "model",
            "layers",
            "hidden",
            "heads",
            "kv_heads",
            "ffn",
            "vocab",
            "seq_len",
            "batch_size",
        ),
        *("precision", "compiled", "power_limit_w", "step_s", "peak_bytes", "reserved_bytes", "energy_j"),
        *("power_w", "sm_clock_mhz", "temperature_c", "capped", "steps"),
    ),
    "gpu_decode": (
        *(
            "device",
            "workload",
            "tensor_parallel",
            "prompt_tokens",
            "output_tokens",
            "concurrency",
            "tpot_ms",
        ),
        *("power_limit_w", "power_w", "sm_clock_mhz", "temperature_c", "capped", "loop_s"),
    ),
}
"""Files by their stem, and their columns."""

TOLD: Mapping[str, str] = {
    "latency_us": "microseconds of one kernel in the loop over which power is read: mean",
    "burst_us": "microseconds of one kernel in short bursts: median",
    "power_w": "board watts over the settled part of the loop",
    "reading_w": "last reading of the board's meter in the loop, itself a mean over time",
    "sm_clock_mhz": "clock of the multiprocessors, mean over the settled part",
    "temperature_c": "of the GPU at the end",
    "capped": "share of the samples in which firmware held the clock down for power; empty: not told",
    "loop_s": "seconds of the loop",
    "power_limit_w": "limit of the board",
    "step_s": "seconds of one training step: median",
    "peak_bytes": "most that tensors took at once (max_memory_allocated)",
    "reserved_bytes": "most that the allocator held (max_memory_reserved)",
    "energy_j": "joules of the board per step",
    "tpot_ms": "milliseconds per output token, at the mean length of the cache",
    "cols": "elements of a row; all tensors of an operator are rows x cols",
    "precision": "bf16: weights and states in bf16; autocast: in fp32, products in bf16",
    "backend": "kernel behind scaled_dot_product_attention",
}
"""What columns hold that do not explain themselves."""

SETTLING_S, SAMPLE_S = 0.4, 0.02
"""Part of a loop after which power counts, and seconds between two samples."""

CACHE_BYTES = 256e6
"""Operands of a kernel are renewed in turn until they fill as much: several times any second-level cache."""

MOST_SETS = 64


# -- the board's meter


@dataclass(frozen=True)
class Sample:
    """One look at the board; what it does not tell is NaN. `energy_j`: since its driver was loaded."""

    at_s: float
    power_w: float
    clock_mhz: float
    temperature_c: float
    energy_j: float = math.nan
    capped: float = math.nan


@dataclass(frozen=True)
class Reading:
    """What samples of a loop come to."""

    power_w: float = math.nan
    reading_w: float = math.nan
    sm_clock_mhz: float = math.nan
    temperature_c: float = math.nan
    capped: float = math.nan

    @classmethod
    def of(cls, samples: Sequence[Sample], start_s: float, end_s: float) -> Reading:
        """Mean watts, clock and share of capped samples from `start_s` + the settling time to `end_s`.

        The energy counter moves in steps: watts are its rise between the first and the last step inside.
        """
        inside = [s for s in samples if start_s + SETTLING_S <= s.at_s <= end_s]
        inside = inside or [s for s in samples if start_s <= s.at_s <= end_s]
        if not inside:
            return cls()
        steps = [b for a, b in pairwise(inside) if b.energy_j > a.energy_j]
        watts = inside[-1].power_w
        if len(steps) > 1:
            watts = (steps[-1].energy_j - steps[0].energy_j) / (steps[-1].at_s - steps[0].at_s)
        mean = {name: sum(getattr(s, name) for s in inside) / len(inside) for name in ("clock_mhz", "capped")}
        last = inside[-1]
        return cls(watts, last.power_w, mean["clock_mhz"], last.temperature_c, mean["capped"])


class Nvml:
    """The board by NVML (pip install nvidia-ml-py)."""

    _SW_POWER_CAP = 0x4

    def __init__(self, uuid: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml = pynvml
        try:
            self._board = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        except pynvml.NVMLError:
            if pynvml.nvmlDeviceGetCount() != 1:
                raise
            self._board = pynvml.nvmlDeviceGetHandleByIndex(0)

    def limit_w(self) -> float:
        """Power limit of the board."""
        return float(self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._board)) / 1e3

    def sample(self) -> Sample:
        """One look."""
        n, board = self._nvml, self._board
        return Sample(
            time.perf_counter(),
            self._told(lambda: n.nvmlDeviceGetPowerUsage(board) / 1e3),
            self._told(lambda: n.nvmlDeviceGetClockInfo(board, n.NVML_CLOCK_SM)),
            self._told(lambda: n.nvmlDeviceGetTemperature(board, n.NVML_TEMPERATURE_GPU)),
            self._told(lambda: n.nvmlDeviceGetTotalEnergyConsumption(board) / 1e3),
            self._told(lambda: bool(n.nvmlDeviceGetCurrentClocksThrottleReasons(board) & self._SW_POWER_CAP)),
        )

    def _told(self, figure: Callable[[], float]) -> float:
        try:
            return float(figure())
        except (
            self._nvml.NVMLError,
            AttributeError,
        ):  # not told by this board, or not asked for by older bindings
            return math.nan


class Smi:
    """The board by nvidia-smi, where NVML's bindings are not installed: fewer samples, no energy counter."""

    _ASKED = "power.draw,clocks.sm,temperature.gpu"

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def _ask(self, names: str) -> list[float]:
        command = ["nvidia-smi", "-i", self._uuid, f"--query-gpu={names}", "--format=csv,noheader,nounits"]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
        return [number_or_nan(cell) for cell in told.strip().split(",")]

    def limit_w(self) -> float:
        """Power limit of the board."""
        return self._ask("power.limit")[0]

    def sample(self) -> Sample:
        """One look."""
        power, clock, temperature = self._ask(self._ASKED)
        return Sample(time.perf_counter(), power, clock, temperature)


class NoMeter:
    """A machine that tells no watts."""

    def limit_w(self) -> float:
        """Not told."""
        return math.nan

    def sample(self) -> Sample:
        """Nothing but the time."""
        return Sample(time.perf_counter(), math.nan, math.nan, math.nan)


def number_or_nan(cell: str) -> float:
    """A number, or NaN where a tool says that it has none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def meter_of(uuid: str | None) -> Nvml | Smi | NoMeter:
    """The best way there is to ask a board; without a board, none."""
    if uuid is None:
        return NoMeter()
    for way in (Nvml, Smi):
        try:
            found = way(uuid)
            found.sample()
        except Exception:  # noqa: BLE001 - bindings, library, tool or driver may each be missing in their own way
            continue
        return found
    return NoMeter()


@contextmanager
def sampled(meter: Nvml | Smi | NoMeter) -> Iterator[list[Sample]]:
    """Samples of the board while the body runs."""
    found: list[Sample] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            try:
                found.append(meter.sample())
            except (OSError, subprocess.SubprocessError, ValueError):
                return
            over.wait(SAMPLE_S)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


# -- machines


@dataclass
class Machine:
    """Where kernels run: a GPU, or this processor for a rehearsal. `loop_s`: of the loop over which power is read."""

    torch: Any
    device: str
    loop_s: float
    meter: Nvml | Smi | NoMeter = field(default_factory=NoMeter)

    @classmethod
    def of(cls, torch: Any, device: str, loop_s: float) -> Machine:  # noqa: ANN401 - a module
        """The machine with its meter."""
        uuid = None
        if device == "cuda":
            found = str(torch.cuda.get_device_properties(0).uuid)
            uuid = found if found.startswith("GPU-") else f"GPU-{found}"
        return cls(torch, device, loop_s, meter_of(uuid))

    @property
    def is_gpu(self) -> bool:
        """Whether this is a GPU."""
        return self.device == "cuda"

    @property
    def name(self) -> str:
        """What the driver calls it."""
        return str(self.torch.cuda.get_device_name(0)) if self.is_gpu else "cpu"

    def wait(self) -> None:
        """Until everything has run."""
        if self.is_gpu:
            self.torch.cuda.synchronize()

    def mark(self) -> Any:  # noqa: ANN401 - an event, or a time
        """A point in the queue of kernels."""
        if not self.is_gpu:
            return time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_s(self, first: Any, last: Any) -> float:  # noqa: ANN401 - as `mark`
        """Seconds between two points."""
        if not self.is_gpu:
            return float(last - first)
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3

    def captured(self, calls: Sequence[Callable[[], object]], times: int) -> Callable[[], object]:
        """`times` calls in turn as one CUDA graph; where they cannot be captured, one after the other."""
        each = self.eagerly(calls, times)
        if not self.is_gpu:
            return each
        cuda = self.torch.cuda
        graph = cuda.CUDAGraph()
        try:
            with cuda.graph(graph):
                each()
        except RuntimeError:
            cuda.synchronize()
            return each
        return graph.replay  # type: ignore[no-any-return]

    def timed(self, calls: Sequence[Callable[[], object]], *, graph: bool = True) -> dict[str, float]:
        """Columns of a kernel (`_READ`): calls in turn, first in short bursts, then in a loop."""
        for call in calls[:3]:
            call()
        self.wait()
        first = self.mark()
        for i in range(4):
            calls[i % len(calls)]()
        once_s = max(self.between_s(first, self.mark()) / 4, 1e-6)
        times = max(1, min(2000, math.ceil(2e-3 / once_s)))
        burst = self.captured(calls, times) if graph else self.eagerly(calls, times)
        burst()
        self.wait()
        short = sorted(self.spans_s(burst, 25 if self.is_gpu else 3))
        burst_s = short[len(short) // 2] / times
        with sampled(self.meter) as samples:
            start = time.perf_counter()
            spans = self.spans_s(burst, max(3, math.ceil(self.loop_s / (burst_s * times))))
            end = time.perf_counter()
        settled = list(settled_spans(spans))
        read = Reading.of(samples, start, end)
        return {
            "latency_us": 1e6 * sum(settled) / (len(settled) * times),
            "burst_us": 1e6 * burst_s,
            **vars(read),
            "loop_s": end - start,
        }

    @staticmethod
    def eagerly(calls: Sequence[Callable[[], object]], times: int) -> Callable[[], object]:
        """Calls one after the other."""

        def each() -> None:
            for i in range(times):
                calls[i % len(calls)]()

        return each

    def spans_s(self, burst: Callable[[], object], times: int) -> list[float]:
        """Seconds of each burst; some are queued ahead, so that the device never waits for the host."""
        marks = [self.mark()]
        for i in range(times):
            burst()
            marks.append(self.mark())
            if self.is_gpu and i >= 8:
                marks[i - 7].synchronize()
        self.wait()
        return [self.between_s(a, b) for a, b in pairwise(marks)]


def settled_spans(spans_s: Sequence[float]) -> Iterator[float]:
    """Spans that begin after the settling time; the last one of shorter loops."""
    passed = 0.0
    for i, span in enumerate(spans_s):
        if passed >= SETTLING_S or i == len(spans_s) - 1:
            yield span
        passed += span


# -- kernels

Row = dict[str, object]
Case = tuple[str, Row, Callable[[], Mapping[str, object]]]
"""File, what is measured, and the measurement."""

_SQUARES = (512, 1024, 2048, 3072, 4096, 4352, 6144, 8192, 16384)
_LAYERS = (  # m, n, k: GPT-3 175B, Llama 3 8B with its head, GPT-2 XL, one eighth of Llama 3 70B
    *((2048, 36864, 12288), (2048, 12288, 12288), (2048, 49152, 12288), (2048, 12288, 49152)),
    *((4096, 6144, 4096), (4096, 4096, 4096), (8192, 28672, 4096), (8192, 4096, 14336), (4096, 128256, 4096)),
    *((8192, 4800, 1600), (8192, 6400, 1600), (8192, 1600, 6400)),
    *((4096, 1280, 8192), (4096, 8192, 1024), (4096, 7168, 8192)),
)
_NARROW = tuple(
    (m, n, k) for n, k in ((4096, 4096), (28672, 4096), (8192, 28672)) for m in (1, 8, 32, 128, 512)
)
_BATCHED = (
    (96, 2048, 2048, 128),
    (96, 2048, 128, 2048),
    (64, 512, 512, 64),
    (256, 128, 128, 128),
)  # batch, m, n, k


def products(small: bool) -> list[tuple[str, int, int, int, int]]:
    """Products to time: dtype, batch, m, n, k."""
    if small:
        return [("bf16", 1, 64, 48, 32), ("fp32", 2, 16, 32, 64)]
    plain = [("bf16", 1, *shape) for shape in (*((s, s, s) for s in _SQUARES), *_LAYERS, *_NARROW)]
    batched = [("bf16", *shape) for shape in _BATCHED]
    halves = [
        ("fp16", 1, *shape) for shape in ((4096,) * 3, (8192,) * 3, (2048, 49152, 12288), (32, 28672, 4096))
    ]
    eighths = [
        ("fp8", 1, *shape)
        for shape in (
            *((s,) * 3 for s in (2048, 4096, 8192, 16384)),
            *_LAYERS[2:3],
            *_LAYERS[5:8],
            *_NARROW[6:9],
        )
    ]
    words = [("fp32", 1, 2048, 2048, 2048), ("fp32", 1, 4096, 4096, 4096)]
    return [*plain, *batched, *halves, *eighths, *words]


def product_calls(
    machine: Machine, dtype: str, batch: int, m: int, n: int, k: int
) -> list[Callable[[], object]]:
    """Calls of a product on operands in turn."""
    torch = machine.torch
    size = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}[dtype]
    sets = sets_of(size * batch * (m * k + k * n))
    if dtype == "fp8":
        return [_fp8_call(machine, m, n, k) for _ in range(sets)]
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
    lead = (batch,) if batch > 1 else ()

    def one() -> Callable[[], object]:
        a, b = random(machine, (*lead, m, k), kind), random(machine, (*lead, n, k), kind)
        out = torch.empty((*lead, m, n), dtype=kind, device=machine.device)
        return lambda: torch.matmul(a, b.transpose(-1, -2), out=out)

    return [one() for _ in range(sets)]


def _fp8_call(machine: Machine, m: int, n: int, k: int) -> Callable[[], object]:
    torch = machine.torch
    a, b = (random(machine, shape, torch.bfloat16).to(torch.float8_e4m3fn) for shape in ((m, k), (n, k)))
    one = torch.ones((), device=machine.device)
    return lambda: torch._scaled_mm(
        a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def sets_of(size_bytes: float) -> int:
    """Sets of operands that fill more than the cache together."""
    return max(1, min(MOST_SETS, math.ceil(CACHE_BYTES / size_bytes)))


def random(machine: Machine, shape: tuple[int, ...], kind: object) -> Any:  # noqa: ANN401 - a tensor
    """A tensor of normally distributed numbers.

    Its generator is its own: a capture that fails would leave the default one unusable.
    """
    own = machine.torch.Generator(device=machine.device)
    return machine.torch.randn(shape, device=machine.device, dtype=kind, generator=own)


_ROWS: tuple[tuple[str, int, int], ...] = (
    *(
        ("softmax", *shape)
        for shape in ((32768, 768), (8192, 1536), (2048, 4096), (512, 8192), (4096, 24576))
    ),
    *(("norm_layer", *shape) for shape in ((16, 8192), (64, 1024), (512, 4096), (2048, 8192))),
    *(("norm_rms", *shape) for shape in ((16, 4096), (256, 8192), (1024, 2048))),
    *(("gelu", *shape) for shape in ((16384, 8192), (1024, 8192))),
)  # few and many, short and long rows


def kernels(small: bool) -> list[tuple[str, str, int, int]]:
    """Operators of vectors: name, dtype, rows, columns."""
    if small:
        return [("copy", "bf16", 16, 64), ("norm_rms", "fp32", 16, 64)]
    names = ("copy", "add", "relu", "gelu", "norm_layer", "norm_rms", "softmax")
    large = [(name, "bf16", 8192, 12288) for name in names]
    middle = [(name, "bf16", 8192, 2048) for name in names]
    slim = [(name, "bf16", 128, 4096) for name in ("copy", "gelu", "norm_layer")]
    copies = [("copy", "bf16", rows, 16384) for rows in (1024, 16384, 65536)]
    words = [("add", "fp32", 8192, 12288), ("norm_layer", "fp32", 8192, 4096)]
    return [
        *large,
        *middle,
        *slim,
        *copies,
        *words,
        *((name, "bf16", rows, cols) for name, rows, cols in _ROWS),
    ]


def kernel_calls(machine: Machine, op: str, dtype: str, rows: int, cols: int) -> list[Callable[[], object]]:
    """Calls of an operator of vectors on operands in turn."""
    torch = machine.torch
    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    functional = torch.nn.functional
    scale, shift = (
        torch.ones(cols, dtype=kind, device=machine.device),
        torch.zeros(cols, dtype=kind, device=machine.device),
    )

    def one() -> Callable[[], object]:
        x, y = random(machine, (rows, cols), kind), random(machine, (rows, cols), kind)
        out = torch.empty_like(x)
        return {
            "copy": lambda: out.copy_(x),
            "add": lambda: torch.add(x, y, out=out),
            "relu": lambda: torch.clamp_min(x, 0, out=out),
            "gelu": lambda: functional.gelu(x),
            "norm_layer": lambda: functional.layer_norm(x, (cols,), scale, shift),
            "norm_rms": lambda: functional.rms_norm(x, (cols,), scale),
            "softmax": lambda: functional.softmax(x, -1),
        }[op]

    return [one() for _ in range(sets_of(3 * x_bytes(dtype) * rows * cols))]


def x_bytes(dtype: str) -> int:
    """Bytes of an element."""
    return 4 if dtype == "fp32" else 2


Attention = tuple[str, str, int, int, int, int, int, int, bool]
"""Pass, backend, batch, queries, keys, heads, heads of keys and values, size of a head, causal."""


def attentions(small: bool) -> list[Attention]:
    """Attention to time."""
    if small:
        return [("forward", "math", 1, 32, 32, 4, 4, 16, True), ("decode", "math", 2, 1, 64, 4, 4, 16, False)]
    shapes = ((1, 2048, 96, 96, 128), (8, 1024, 16, 16, 64), (2, 4096, 32, 8, 128), (1, 16384, 32, 8, 128))
    found: list[Attention] = []
    for batch, tokens, heads, kv_heads, size in shapes:
        for backend in ("flash", "cudnn"):
            found += [
                (pass_, backend, batch, tokens, tokens, heads, kv_heads, size, True)
                for pass_ in ("forward", "backward")
            ]
    found.append(("forward", "flash", 2, 4096, 4096, 16, 16, 128, False))
    for batch, keys in ((1, 2048), (16, 2048), (64, 2048), (16, 16384), (128, 1024)):
        found += [("decode", "flash", batch, 1, keys, 32, 8, 128, False)]
    return found


def attention_calls(machine: Machine, case: Attention) -> list[Callable[[], object]]:
    """Calls of attention on operands in turn."""
    torch = machine.torch
    pass_, backend, batch, queries, keys, heads, kv_heads, size, causal = case
    shared = heads != kv_heads and queries == 1
    held = kv_heads if shared else heads  # kernels of PyTorch train on keys and values of every head
    kinds = torch.nn.attention.SDPBackend
    chosen = {"flash": kinds.FLASH_ATTENTION, "cudnn": kinds.CUDNN_ATTENTION, "math": kinds.MATH}[backend]

    def forward(q: Any, k: Any, v: Any) -> Any:  # noqa: ANN401 - tensors
        with torch.nn.attention.sdpa_kernel(chosen):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=shared
            )

    def one() -> Callable[[], object]:
        q = random(machine, (batch, queries, heads, size), torch.bfloat16).transpose(1, 2)
        k, v = (random(machine, (batch, keys, held, size), torch.bfloat16).transpose(1, 2) for _ in range(2))
        if pass_ != "backward":
            return lambda: forward(q, k, v)
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        out = forward(*inputs)
        gradient = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)

    return [one() for _ in range(sets_of(2 * batch * size * (2 * keys * held + 2 * queries * heads)))]


# -- whole models


@dataclass(frozen=True)
class Model:
    """A decoder. `llama`: RMS norms, rotated positions, gated SiLU, no biases; else GPT-2's form."""

    model: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    llama: bool = False


GPT2_MEDIUM = Model("gpt2-medium", 24, 1024, 16, 16, 4096, 50304)
GPT2_XL = Model("gpt2-xl", 48, 1600, 25, 25, 6400, 50304)
LLAMA_1B = Model("llama-1b", 16, 2048, 32, 8, 8192, 128256, llama=True)
LLAMA_8B = Model("llama3-8b", 32, 4096, 32, 8, 14336, 128256, llama=True)
TINY = Model("tiny", 2, 32, 4, 4, 64, 128)
TINY_LLAMA = Model("tiny-llama", 2, 32, 4, 2, 64, 128, llama=True)

Step = tuple[Model, int, int, str, bool]
"""Model, tokens of a sequence, batch, precision, compiled."""


def steps(small: bool) -> list[Step]:
    """Training steps to time."""
    if small:
        return [(TINY, 16, 2, "bf16", False), (TINY_LLAMA, 16, 2, "autocast", False)]
    return [
        (GPT2_MEDIUM, 1024, 8, "bf16", False),
        (GPT2_MEDIUM, 1024, 8, "autocast", False),
        (GPT2_MEDIUM, 1024, 8, "autocast", True),
        (GPT2_MEDIUM, 1024, 32, "bf16", True),
        (LLAMA_1B, 2048, 4, "bf16", False),
        (LLAMA_1B, 2048, 4, "autocast", True),
        (LLAMA_1B, 8192, 1, "bf16", True),
        (GPT2_XL, 1024, 8, "bf16", False),
        (GPT2_XL, 1024, 8, "autocast", True),
    ]


def built(machine: Machine, model: Model, tokens: int) -> Any:  # noqa: ANN401 - a module
    """The decoder as a PyTorch module: tied embeddings, flash attention, no dropout."""
    torch = machine.torch
    nn, functional = torch.nn, torch.nn.functional
    size = model.hidden // model.heads

    def norm() -> Any:  # noqa: ANN401 - a module
        return nn.RMSNorm(model.hidden) if model.llama else nn.LayerNorm(model.hidden)

    def rotated(x: Any, turns: Any) -> Any:  # noqa: ANN401 - tensors
        low, high = x.chunk(2, -1)
        cosine, sine = turns
        return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1).type_as(x)

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            bias, kv = not model.llama, model.kv_heads * size
            self.first, self.second = norm(), norm()
            self.qkv = nn.Linear(model.hidden, model.hidden + 2 * kv, bias=bias)
            self.out = nn.Linear(model.hidden, model.hidden, bias=bias)
            self.up = nn.Linear(model.hidden, model.ffn, bias=bias)
            self.gate = nn.Linear(model.hidden, model.ffn, bias=False) if model.llama else None
            self.down = nn.Linear(model.ffn, model.hidden, bias=bias)
            self.widths = [model.hidden, kv, kv]

        def forward(self, x: Any, turns: Any, cache: Any = None) -> Any:  # noqa: ANN401 - tensors
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.first(x)).split(self.widths, -1)
            q, k, v = (t.view(batch, length, -1, size).transpose(1, 2) for t in (q, k, v))
            if turns is not None:
                q, k = rotated(q, turns), rotated(k, turns)
            if cache is not None:
                cache[0][:, :, -1:], cache[1][:, :, -1:] = k, v
                k, v = cache
            y = functional.scaled_dot_product_attention(
                q, k, v, is_causal=cache is None, enable_gqa=model.heads != model.kv_heads
            )
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, model.hidden))
            h = self.second(x)
            up = self.up(h)
            wide = (
                functional.gelu(up, approximate="tanh")
                if self.gate is None
                else functional.silu(self.gate(h)) * up
            )
            return x + self.down(wide)

    class Decoder(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(model.vocab, model.hidden)
            self.places = None if model.llama else nn.Embedding(tokens, model.hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(model.layers))
            self.last = norm()
            if model.llama:
                angles = torch.outer(
                    torch.arange(tokens), 500_000.0 ** -(torch.arange(0, size, 2).float() / size)
                )
                self.register_buffer("cosine", angles.cos(), persistent=False)
                self.register_buffer("sine", angles.sin(), persistent=False)

        def forward(self, ids: Any, caches: Any = None) -> Any:  # noqa: ANN401 - tensors
            length = ids.shape[1]
            x, turns = self.table(ids), None
            if self.places is None:
                turns = self.cosine[-length:], self.sine[-length:]
            else:
                x = x + self.places.weight[:length]
            for i, block in enumerate(self.blocks):
                x = block(x, turns, None if caches is None else caches[i])
            return functional.linear(self.last(x), self.table.weight)

    with torch.device(machine.device):
        made = Decoder()
    for weight in made.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.02)
    return made


def step_measured(machine: Machine, case: Step) -> Mapping[str, object]:
    """Columns of training steps: AdamW in one kernel, gradients made anew, the loss in fp32."""
    torch = machine.torch
    model, tokens, batch, precision, compiled = case
    if machine.is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.backends.cuda.enable_cudnn_sdp(False)  # flash attention, whatever this release prefers
    made = built(machine, model, tokens)
    if precision == "bf16":
        made.to(torch.bfloat16)
    if compiled:
        torch._dynamo.reset()
        for block in made.blocks:
            block.compile()
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(model.vocab, (batch, tokens + 1), device=machine.device)

    def step() -> None:
        cast = torch.autocast(machine.device, torch.bfloat16) if precision == "autocast" else nullcontext()
        with cast:
            scores = made(ids[:, :-1])
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    machine.wait()
    first = machine.mark()
    step()
    step_s = machine.between_s(first, machine.mark())
    times = max(3, math.ceil(2 * machine.loop_s / step_s))
    with sampled(machine.meter) as samples:
        start = time.perf_counter()
        spans = sorted(machine.spans_s(step, times))
        end = time.perf_counter()
    read = Reading.of(samples, start, end)
    median = spans[len(spans) // 2]
    memory = {"peak_bytes": 0, "reserved_bytes": 0}
    if machine.is_gpu:
        memory = {
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
        }
    return {
        "step_s": median,
        **memory,
        "energy_j": read.power_w * sum(spans) / len(spans),
        **vars(read),
        "steps": times,
    }


def decode_measured(machine: Machine, model: Model, context: int, batch: int) -> Mapping[str, object]:
    """Columns of a decoding step on a cache of so many tokens, replayed as a CUDA graph."""
    torch = machine.torch
    with torch.no_grad():
        made = built(machine, model, context).to(torch.bfloat16)
        shape = (batch, context, model.kv_heads, model.hidden // model.heads)
        caches = [
            tuple(random(machine, shape, torch.bfloat16).transpose(1, 2) for _ in range(2))
            for _ in range(model.layers)
        ]
        ids = torch.randint(model.vocab, (batch, 1), device=machine.device)
        read = machine.timed([lambda: made(ids, caches).argmax(-1)])
    if machine.is_gpu:
        torch.cuda.empty_cache()
    return {**read, "tpot_ms": read["latency_us"] * 1e-3}


# -- tables


def idle_measured(machine: Machine) -> Mapping[str, object]:
    """Columns of a board on which nothing runs."""
    with sampled(machine.meter) as samples:
        start = time.perf_counter()
        time.sleep(3 * machine.loop_s)
        end = time.perf_counter()
    return {**vars(Reading.of(samples, start, end)), "loop_s": end - start}


def cases(machine: Machine, parts: Sequence[str], small: bool) -> Iterator[Case]:
    """Everything that is measured, in order."""

    def timed(calls: Callable[[], Sequence[Callable[[], object]]], graph: bool = True) -> Callable[[], Row]:
        return lambda: dict(machine.timed(calls(), graph=graph))

    if "idle" in parts:
        yield "gpu_idle", {"state": "nothing runs"}, lambda: idle_measured(machine)
    if "products" in parts:
        for dtype, batch, m, n, k in products(small):
            row: Row = {"dtype": dtype, "batch": batch, "m": m, "n": n, "k": k}
            yield "gpu_products", row, timed(lambda a=(dtype, batch, m, n, k): product_calls(machine, *a))  # type: ignore[misc]
    if "kernels" in parts:
        for op, dtype, rows, cols in kernels(small):
            row = {"op": op, "dtype": dtype, "rows": rows, "cols": cols}
            yield "gpu_kernels", row, timed(lambda a=(op, dtype, rows, cols): kernel_calls(machine, *a))  # type: ignore[misc]
    if "attention" in parts:
        names = ("op", "backend", "batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "causal")
        for case in attentions(small):
            row = {**dict(zip(names, case, strict=True)), "causal": int(case[-1])}
            if case[0] != "decode":
                row["kv_heads"] = row["heads"]
            calls = timed(lambda c=case: attention_calls(machine, c), graph=case[0] != "backward")  # type: ignore[misc]
            yield "gpu_attention", row, calls
    if "steps" in parts:
        for one in steps(small):
            model, tokens, batch, precision, compiled = one
            row = {name: value for name, value in vars(model).items() if name != "llama"}
            row |= {"seq_len": tokens, "batch_size": batch, "precision": precision, "compiled": int(compiled)}
            yield "gpu_steps", row, lambda c=one: step_measured(machine, c)  # type: ignore[misc]
    if "decode" in parts:
        model, prompt, output = (TINY_LLAMA, 12, 8) if small else (LLAMA_8B, 1024, 256)
        for batch in (1, 2) if small else (1, 16, 64):
            row = {
                "workload": model.model,
                "tensor_parallel": 1,
                "prompt_tokens": prompt,
                "output_tokens": output,
            }
            row["concurrency"] = batch
            context = prompt + output // 2
            yield "gpu_decode", row, lambda b=batch, c=context, m=model: decode_measured(machine, m, c, b)  # type: ignore[misc]


def head(machine: Machine, name: str) -> list[str]:
    """Comments above a table: what was measured, and what its columns hold."""
    torch = machine.torch
    words = f"# {machine.name}, PyTorch {torch.__version__}, {time.strftime('%Y-%m-%d', time.gmtime())}"
    told = [f"# {column}: {TOLD[column]}" for column in COLUMNS[name] if column in TOLD]
    return [words, "# measured by dse measure gpu", *told]


def cell(value: object) -> str:
    """A value as a table holds it: seven digits of a number, nothing of what was not told."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.7g}"
    return str(value)


def measure(
    machine: Machine, out: Path, parts: Sequence[str], minutes: float, say: Callable[[str], None]
) -> list[Path]:
    """Measure everything and write a table of each kind, a row as soon as it is known; tables written.

    A case that this GPU cannot run is told and left out. Nothing is begun after `minutes`.
    """
    begun, written = time.perf_counter(), {}
    small = not machine.is_gpu
    always = {"device": machine.name, "power_limit_w": machine.meter.limit_w()}
    for name, row, found in cases(machine, parts, small):
        what = " ".join(str(value) for value in row.values())
        if time.perf_counter() - begun > 60 * minutes:
            say(f"{minutes:g} minutes are over; left out: {name} {what} and what follows")
            break
        try:
            read = found()
        except (
            RuntimeError,
            NotImplementedError,
            AttributeError,
        ) as error:  # out of memory is a RuntimeError
            say(f"{name} {what}: left out ({' '.join(str(error).split())[:150]})")
            continue
        whole = {**always, **row, **read}
        if name not in written:
            written[name] = out / f"{name}.csv"
            lines = [*head(machine, name), ",".join(COLUMNS[name])]
            written[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
        with written[name].open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([cell(whole[column]) for column in COLUMNS[name]])
        keys = ("latency_us", "step_s", "tpot_ms", "power_w", "sm_clock_mhz", "temperature_c")
        say(f"{name} {what}: " + ", ".join(f"{key} {cell(read[key])}" for key in keys if key in read))
    return list(written.values())


def machine_here(device: str, loop_s: float) -> Machine:
    """The GPU of this machine. Raises OSError with one sentence where PyTorch or a GPU is missing."""
    try:
        import torch
    except ImportError as error:
        raise OSError(NO_TORCH) from error
    if device == "cuda" and not (torch.cuda.is_available() and torch.version.cuda):
        raise OSError(NO_GPU)
    return Machine.of(torch, device, loop_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 2 where nothing can be measured here."""
    parser = argparse.ArgumentParser(
        description="Measure one NVIDIA GPU; tables for dse calibrate and dse validate."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="measure this part only; may be repeated"
    )
    parser.add_argument(
        "--loop", type=float, default=1.2, help="seconds of the loop over which power is read"
    )
    parser.add_argument("--minutes", type=float, default=15.0, help="begin nothing after as many minutes")
    parser.add_argument(
        "--device", default="cuda", choices=("cuda", "cpu"), help="cpu: a rehearsal of small cases"
    )
    asked = parser.parse_args(argv)
    try:
        machine = machine_here(asked.device, asked.loop)
        asked.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 2

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    written = measure(machine, asked.out, asked.part or PARTS, asked.minutes, say)
    sys.stdout.write("".join(f"{path}\n" for path in written))
    return 0 if written else 2


if __name__ == "__main__":
    sys.exit(main())
