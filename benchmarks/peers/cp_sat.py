"""A multi-mode project-scheduling model in OR-Tools CP-SAT: JSON on standard input, JSON on standard output.

Runs alone: it imports nothing of the project. The documents are described in `project.py`.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field

from ortools.sat.python import cp_model


@dataclass
class Variables:
    """Start of every task, presence of its modes, and who asks how much of which resource."""

    starts: list[cp_model.IntVar] = field(default_factory=list)
    modes: list[list[cp_model.IntVar]] = field(default_factory=list)
    ends: list[cp_model.LinearExprT] = field(default_factory=list)
    uses: dict[int, list[tuple]] = field(default_factory=dict)


def build(project: dict) -> tuple[cp_model.CpModel, Variables]:
    """One optional interval per mode, a cumulative per resource, precedences, the makespan."""
    model, variables = cp_model.CpModel(), Variables()
    for task in project["tasks"]:
        add_task(model, variables, task, project["horizon"])
    for before, after in project["edges"]:
        model.add(variables.starts[after] >= variables.ends[before])
    makespan = model.new_int_var(0, project["horizon"], "makespan")
    for end in variables.ends:
        model.add(makespan >= end)
    for resource, capacity in enumerate(project["resources"]):
        add_resource(model, variables.uses.get(resource, []), capacity, makespan)
    model.minimize(makespan)
    for i, (start, mode) in enumerate(project["hint"]):
        model.add_hint(variables.starts[i], start)
        for k, present in enumerate(variables.modes[i]):
            model.add_hint(present, k == mode)
    return model, variables


def add_task(model: cp_model.CpModel, variables: Variables, task: list[dict], horizon: int) -> None:
    """A task runs in exactly one of its modes."""
    start = model.new_int_var(0, horizon, "")
    present = [model.new_bool_var("") for _ in task]
    model.add_exactly_one(present)
    for literal, mode in zip(present, task, strict=True):
        duration = mode["duration"]
        interval = model.new_optional_fixed_size_interval_var(start, duration, literal, "")
        for resource, demand in mode["demands"]:
            variables.uses.setdefault(resource, []).append((interval, literal, duration, demand))
    variables.starts.append(start)
    variables.modes.append(present)
    variables.ends.append(start + sum(d["duration"] * p for d, p in zip(task, present, strict=True)))


def add_resource(
    model: cp_model.CpModel, uses: list[tuple], capacity: int, makespan: cp_model.IntVar
) -> None:
    """Never more than the capacity at once, nor, as a cut, in sum over the whole makespan."""
    if capacity == 1:
        model.add_no_overlap([interval for interval, *_ in uses])
    else:
        model.add_cumulative([use[0] for use in uses], [use[3] for use in uses], capacity)
    work = sum(duration * demand * literal for _, literal, duration, demand in uses)
    model.add(work <= capacity * makespan)


def solve(project: dict) -> dict:
    """Best schedule and bound within the limit."""
    model, variables = build(project)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = project["limit_s"]
    solver.parameters.num_workers = project["workers"]
    for name, value in project["cp_sat"].items():
        setattr(solver.parameters, name, value)
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return {"schedule": None}
    return {
        "optimal": status == cp_model.OPTIMAL,
        "makespan": solver.objective_value,
        "bound": solver.best_objective_bound,
        "schedule": [
            [solver.value(start), [solver.value(literal) for literal in present].index(1)]
            for start, present in zip(variables.starts, variables.modes, strict=True)
        ],
    }


def main() -> None:
    """One project in, one answer out, with the time that building and solving took."""
    project = json.load(sys.stdin)
    began = time.monotonic()
    answer = solve(project)
    json.dump({**answer, "runtime_s": time.monotonic() - began}, sys.stdout)


if __name__ == "__main__":
    main()
