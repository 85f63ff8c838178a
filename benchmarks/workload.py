"""From a model to the layers of its training graph: processor time and memory, each case in its own process."""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from report import Report
from tables import duration, table
from timing import seconds

MICROBATCH = 4


@dataclass(frozen=True)
class Case:
    """A model, how to get at it, and the time it is meant to take at most.

    `source` writes what is needed into a folder and returns what `load_workload` is given.
    """

    name: str
    source: Callable[[Path], str]
    target_s: float
    tensor_parallel: int = 1


@dataclass(frozen=True)
class Measured:
    """What a case took; `memory_bytes` beyond what the process had before."""

    name: str
    operators: int
    layers: int
    seconds: float
    target_s: float
    memory_bytes: float


def builtin(name: str, _: Path) -> str:
    """A built-in workload needs no file."""
    return name


def resnet50(folder: Path) -> str:
    """ResNet-50 as an ONNX file."""
    from onnx_models import resnet50 as write

    return write(folder)


def blocks(nodes: int, folder: Path) -> str:
    """An ONNX file of so many nodes."""
    from onnx_models import blocks as write

    return write(folder, nodes)


CASES: Sequence[Case] = (
    Case("GPT-3, tensor-parallel over 8", partial(builtin, "gpt3"), 0.5, tensor_parallel=8),
    Case("ResNet-50, ONNX", resnet50, 1.0),
    *(
        Case(f"{nodes:,} nodes, ONNX", partial(blocks, nodes), 30.0 * nodes / 100_000)
        for nodes in (1000, 10_000)
    ),
    Case("100,000 nodes, ONNX", partial(blocks, 100_000), 30.0),
)


def measure(tell: Callable[[str], None], cases: Sequence[Case] = CASES) -> list[Measured]:
    """All cases, one after another."""
    found = []
    context = multiprocessing.get_context("spawn")
    for case in cases:
        with ProcessPoolExecutor(1, mp_context=context) as pool, tempfile.TemporaryDirectory() as folder:
            found.append(pool.submit(_measure, case, case.source(Path(folder))).result())
        tell(f"{case.name}: {duration(found[-1].seconds)}")
    return found


def _measure(case: Case, source: str) -> Measured:
    """One case: what it imports is imported before."""
    import phaze.workload.onnx  # noqa: F401
    from phaze.workload.workload_loader import load_workload

    before = _peak_bytes()
    chain, took = seconds(lambda: load_workload(source).chain(MICROBATCH, case.tensor_parallel))
    layers = [chain.layers[i] for i in chain.index]
    operators = sum(
        len(layer.forward.works) + len(layer.backward.works if layer.backward else ()) for layer in layers
    )
    return Measured(case.name, operators, len(layers), took, case.target_s, _peak_bytes() - before)


def _peak_bytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def report(found: Sequence[Measured]) -> Report:
    """A table and its rows."""
    headers = ("model", "operators", "layers", "time", "meant to be below", "memory")
    rows = [
        (
            m.name,
            f"{m.operators:,}",
            f"{m.layers:,}",
            duration(m.seconds),
            duration(m.target_s),
            f"{m.memory_bytes / 1e6:.0f} MB",
        )
        for m in found
    ]
    text = (
        "# From a model to its training graph\n\n"
        f"Processor time from the source to the layers of one training step (microbatch {MICROBATCH}), "
        "forward and backward operators after fusion.\n\n"
        f"{table(headers, rows)}\n"
    )
    return Report("workload", text, [asdict(m) for m in found])
