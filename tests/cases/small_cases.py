"""A decoder small enough to be placed in milliseconds, and architectures of very different balance."""

from __future__ import annotations

from itertools import product

import numpy as np

from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.search_points import WorkloadPoints
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.request.search_resources import ALONE
from phaze.hardware.architecture import load_architecture, to_table
from phaze.testing.small_problem import DECODER
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

FEW_ARRAYS = """
schema_version: 1
name: few
fixed: {global_buffer_bytes_per_cycle: 1024}
axes:
  - {fields: [tensor_cores], values: [1, 4]}
  - {fields: [tensor_core_rows], values: [64, 256]}
"""


def small_decoder(folder, mode=Mode.TRAINING):
    """The decoder as a workload; its file goes to `folder`."""
    path = folder / "tiny.yaml"
    path.write_text(DECODER)
    return load_workload(str(path), mode)


def varied_architectures():
    """TPU v4 with other numbers of cores, array shapes, buffers and links, as a table."""
    axes = {
        "tensor_cores": (1, 3, 8),
        "tensor_core_rows": (32, 256),
        "vector_cores": (1, 4),
        "vector_core_alus": (64, 1024),
        "link_bandwidth_bytes_per_s": (20e9, 300e9),
    }
    values = np.array(list(product(*axes.values()))).T
    base = to_table([load_architecture("tpuv4")]).take(np.zeros(values.shape[1], dtype=np.intp))
    return base.replace(**{n: v.astype(base[n].dtype) for n, v in zip(axes, values, strict=True)})


class Remembering(dict):
    """A store in memory."""

    def get(self, keys):
        return {key: self[key] for key in keys if key in self}

    def put(self, items):
        for key, value in items.items():
            self.setdefault(key, value)


def certified(candidates, task, *, clock=None, axes="throughput,tdp", least=0.0, resources=ALONE, **options):
    """The outcome of the certified search of one workload on some axes."""
    clock = clock or Clock(300.0)
    chosen = SearchAxes(tuple(map(metric, axes.split(","))))
    points = WorkloadPoints.of(candidates, task, clock, chosen, least=least, resources=resources)
    return CertifiedSearch(points, clock, SilentProgress(), **options).run()


class StopsSoon(Clock):
    """A clock that is over after so many looks."""

    def __init__(self, looks):
        super().__init__(600.0)
        self.looks = looks

    @property
    def over(self):
        self.looks -= 1
        return self.looks < 0
