"""Time what phaze does most: schedules, placements, partitions, operator costs, one whole run.

    python benchmarks/run.py [--data DIR] [--limit 5] [--out FILE]

`--data` is a folder with scheduling/*.json and placement/*.json (formats dse-schedule/1 and dse-placement/1);
without it the schedules are seeded random ones and placements are left out. Writes nothing without `--out`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from pathlib import Path

import numpy as np
from phaze.solvers.placement import place, read_problem
from phaze.solvers.placement.partition import PartitionProblem, bottlenecks, stage_limits
from phaze.solvers.scheduling import Method, Operator, ScheduleProblem, read_instance, schedule

from phaze.cost.model import CostModel
from phaze.explore.api import explore
from phaze.explore.request import Budgets, ExploreRequest, Task
from phaze.hardware.network import load_network
from phaze.hardware.space_file import load_space
from phaze.workload.spec import load_workload

STAGES = tuple(range(1, 17))


def seconds(work):
    """The answer and the processor time it took, s: other jobs on the machine disturb it less than a clock."""
    began = time.process_time()
    answer = work()
    return answer, time.process_time() - began


def summary(times):
    """Median and 95th percentile as text, ms."""
    return f"{1e3 * statistics.median(times):.3g} ms, p95 {1e3 * float(np.percentile(times, 95)):.3g} ms"


def random_problem(seed, size):
    """A layered graph on one to four cores; core-parallel latencies 1 to 1.3 times an even split."""
    rng = random.Random(seed)
    capacity = {unit: rng.choice([1, 2, 4]) for unit in ("TC", "VC")}
    operators = []
    for i in range(size):
        units = rng.choice([("TC",), ("TC",), ("VC",), ("TC", "VC")])
        width, latency = min(capacity[unit] for unit in units), rng.uniform(0.1, 1.0)
        operators.append(Operator(str(i), units, latency, latency / width * rng.uniform(1.0, 1.3)))
    edges = [(str(i), str(j)) for j in range(size) for i in range(j) if rng.random() < 1.5 / size]
    return ScheduleProblem(tuple(operators), tuple(edges), capacity)


def instances(folder, kind, read):
    """The problems in a folder of instance files, by name."""
    files = sorted((folder / kind).glob("*.json")) if folder else []
    return {file.name: read(json.loads(file.read_text(encoding="utf-8"))) for file in files}


def schedules(folder, limit_s):
    """Exact method against HiGHS (through Pyomo) on the same problems."""
    sets = {f"random, {size} operators": [random_problem(k, size) for k in range(20)] for size in (8, 12)}
    named = instances(folder, "scheduling", read_instance)
    sets["files small-*"] = [problem for name, problem in named.items() if name.startswith("small-")]
    sets["other files"] = [problem for name, problem in named.items() if not name.startswith("small-")]
    for name, problems in sets.items():
        medians = {}
        for method in (Method.EXACT, Method.ILP):
            if not problems or (method is Method.ILP and name == "other files"):
                continue  # HiGHS proves none of the large ones in a minute
            solved = [seconds(lambda p=p, m=method: schedule(p, m, limit_s)) for p in problems]
            results, times = zip(*solved, strict=True)
            medians[method] = statistics.median(times)
            proven = f"{sum(result.optimal for result in results)}/{len(results)} proven"
            note = f", {medians[method] / medians[Method.EXACT]:.0f} x exact" if method is Method.ILP else ""
            yield f"schedule, {name}, {method.value}", f"{summary(times)}; {proven}{note}"


def placements(folder):
    """Exact placement of every instance file."""
    times = [seconds(lambda p=p: place(p))[1] for p in instances(folder, "placement", read_problem).values()]
    if times:
        yield f"placement, {len(times)} files", summary(times)


def partition(architectures=1024, layers=96):
    """Exact stage partition of one chain for many architectures and all stage counts."""
    rng = np.random.default_rng(0)
    plain = rng.uniform(1.0, 2.0, (architectures, layers))
    boundary = np.full((architectures, layers + 1), 0.1)
    figures = {
        name: np.ones(layers) for name in ("static_bytes", "saved_bytes", "input_bytes", "working_bytes")
    }
    limits = stage_limits(**figures, memory_bytes=1e9, recompute=False, inflight_limit=None)
    problem = PartitionProblem(plain, plain, boundary, limits, np.arange(layers))
    _, taken = seconds(lambda: bottlenecks(problem, STAGES))
    per = 1e6 * taken / (architectures * len(STAGES))
    yield f"partition, {architectures} x {len(STAGES)} stage counts, {layers} layers", f"{per:.3g} us each"


def costs(workload, space, network, count=4096):
    """Both latencies of every operator of a layer chain on many architectures."""
    rows = np.linspace(0, space.size - 1, count, dtype=np.int64)
    model = CostModel(space.table(rows.tolist()), network)
    layers = workload.chain(1, 1).layers
    passes = [p for layer in layers for p in (layer.forward, layer.backward) if p]
    operators = sum(len(p.works) for p in passes)
    _, taken = seconds(lambda: [model.costs(p).latencies(np.arange(count)) for p in passes])
    yield f"costs, {count} x {operators} operators", f"{1e9 * taken / (count * operators):.3g} ns each"


def whole_run(workload, space, network):
    """`dse run --workload gpt3 --power 400W` without start-up and files."""
    request = ExploreRequest(Task(workload, 1024, network), space, Budgets(power_w=400.0))
    answer, taken = seconds(lambda: explore(request))
    gap = answer.document.certificate.gap
    yield "run, gpt3, 400 W, 1024 devices", f"{taken:.3g} s, certificate gap {gap:.3g}"


def main():
    parser = argparse.ArgumentParser(description="Time what phaze does most.")
    parser.add_argument("--data", type=Path, help="folder with scheduling/ and placement/ instance files")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds per schedule (default 5)")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    gpt3, space, network = (
        load_workload("gpt3"),
        load_space(),
        load_network("default"),
    )
    lines = [f"{os.cpu_count()} cores; processor time"]
    print(lines[0])
    for rows in (
        schedules(arguments.data, arguments.limit),
        placements(arguments.data),
        partition(),
        costs(gpt3, space, network),
        whole_run(gpt3, space, network),
    ):
        for name, text in rows:
            lines.append(f"{name:<52} {text}")
            print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
