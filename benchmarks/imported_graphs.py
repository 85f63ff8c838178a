"""Scheduling instances of imported models: the backward passes of several layers in one.

The models are the ONNX files that come with the package `onnx` (weights left out), which nobody here wrote. Adjacent
layers are joined until a pass has as many operators as asked for.

    python benchmarks/imported_graphs.py FOLDER/scheduling
    python benchmarks/run.py schedules --data FOLDER --limit 5

writes the instances in the format `dse-schedule/1`, and solves them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from phaze.cost.cost_model import CostModel
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import under_load
from phaze.scheduling.passes import UNITS_OF
from phaze.workload.layers.layer_builder import build_layer
from phaze.workload.layers.layer_cutting import Segment, cut
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.sharding.layer_division import UndividedModel
from phaze.workload.work import Pass
from phaze.workload.workload_loader import load_workload

MODELS = ("inception_v1", "inception_v2", "densenet121", "shufflenet")
"""Files `light_MODEL.onnx`: those whose layers branch."""

SIZES = (59, 80, 104, 132, 180)
"""Least operators of a pass."""

CORES = ((2, 2), (4, 2), (2, 4), (4, 4), (8, 4), (8, 8), (16, 8), (16, 16))
"""Tensor and vector cores, in turn."""

MICROBATCH = 4


def instances() -> Iterator[dict[str, object]]:
    """Every model at every size, cores in turn."""
    number = 0
    for model in MODELS:
        workload = load_workload(light(model))
        graph = workload.operator_graph(MICROBATCH)
        whole = UndividedModel(graph, workload.rules_context(graph))
        segments = cut(graph, whole.ctx)
        for size in SIZES:
            pass_ = joined(segments, whole, size)
            cores = CORES[number % len(CORES)]
            yield document(f"{model}-{len(pass_.works)}-tc{cores[0]}-vc{cores[1]}", pass_, cores)
            number += 1


def light(model: str) -> str:
    """Path of a file that comes with `onnx`."""
    return str(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{model}.onnx")


def joined(segments: Sequence[Segment], whole: UndividedModel, size: int) -> Pass:
    """The backward pass of as few layers, from the middle of the model on, as have so many operators."""
    first = len(segments) // 3
    for end in range(first + 1, len(segments) + 1):
        some = segments[first:end]
        segment = replace(
            some[-1], operators=tuple(op for one in some for op in one.operators), inputs=some[0].inputs
        )
        backward = build_layer(segment, whole, Sharding.of(1)).backward
        assert backward is not None
        if len(backward.works) >= size:
            return backward
    return backward


def document(name: str, pass_: Pass, cores: tuple[int, int]) -> dict[str, object]:
    """An instance of a pass on TPU v4's arrays and memory with other numbers of smaller cores."""
    costs = CostModel(chip(cores), load_network()).costs(pass_).latencies(np.array([0]))
    return {
        "format": "dse-schedule/1",
        "name": name,
        "num_tensor_cores": cores[0],
        "num_vector_cores": cores[1],
        "core_pairing": False,
        "ops": [
            {
                "id": str(i),
                "unit": "+".join(UNITS_OF[work.unit]),
                "latency_s": float(costs.single_s[0, i]),
                "parallel_latency_s": float(costs.parallel_s[0, i]),
            }
            for i, work in enumerate(pass_.works)
        ],
        "edges": [[str(a), str(b)] for a, b in pass_.edges],
    }


def chip(cores: tuple[int, int]) -> ArchitectureTable:
    """One architecture: arrays so much smaller that all together stay the same."""
    base = to_table([load_architecture("tpuv4")])
    side = int(256 / np.sqrt(max(cores)))
    changed = {
        "tensor_cores": cores[0],
        "vector_cores": cores[1],
        "tensor_core_rows": side,
        "tensor_core_columns": side,
        "vector_core_alus": 2048 // cores[1],
    }
    return under_load(base.replace(**{n: np.array([v]).astype(base[n].dtype) for n, v in changed.items()}))


def main() -> None:
    """Write all instances to a folder."""
    parser = argparse.ArgumentParser(description="Write scheduling instances of imported models.")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for one in instances():
        text = json.dumps(one, indent=1) + "\n"
        (arguments.folder / f"{one['name']}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
