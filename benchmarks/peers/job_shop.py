"""A multi-mode project-scheduling model in PyJobShop: JSON on standard input, JSON on standard output.

Runs alone: it imports nothing of the project. The documents are described in `project.py`.
"""

from __future__ import annotations

import json
import sys
import time

from pyjobshop import Model, ScheduledTask, Solution


def build(project: dict) -> Model:
    """Renewable resources, one task per operator with its modes, precedences, the makespan."""
    model = Model()
    resources = [model.add_renewable(capacity) for capacity in project["resources"]]
    tasks = []
    for task in project["tasks"]:
        tasks.append(model.add_task(latest_end=project["horizon"]))
        for mode in task:
            used, demands = zip(*mode["demands"], strict=True)
            model.add_mode(tasks[-1], [resources[i] for i in used], mode["duration"], list(demands))
    for before, after in project["edges"]:
        model.add_end_before_start(tasks[before], tasks[after])
    model.set_objective(weight_makespan=1)
    return model


def first_solution(project: dict, model: Model) -> Solution:
    """The hint as PyJobShop wants it; its modes are numbered through all tasks."""
    data, scheduled, first = model.data(), [], 0
    for task, (start, mode) in zip(project["tasks"], project["hint"], strict=True):
        resources = data.modes[first + mode].resources
        scheduled.append(ScheduledTask(first + mode, resources, start, start + task[mode]["duration"]))
        first += len(task)
    return Solution(data, scheduled)


def solve(project: dict) -> dict:
    """Best schedule and bound within the limit."""
    model = build(project)
    result = model.solve(
        display=False,
        time_limit=project["limit_s"],
        num_workers=project["workers"],
        initial_solution=first_solution(project, model),
        **project["cp_sat"],
    )
    if not result.best.tasks:
        return {"schedule": None}
    chosen, first = [], 0
    for task, scheduled in zip(project["tasks"], result.best.tasks, strict=True):
        chosen.append([scheduled.start, scheduled.mode - first])
        first += len(task)
    return {
        "optimal": result.status.value == "Optimal",
        "makespan": result.objective,
        "bound": result.lower_bound,
        "schedule": chosen,
    }


def main() -> None:
    """One project in, one answer out, with the time that building and solving took."""
    project = json.load(sys.stdin)
    began = time.monotonic()
    answer = solve(project)
    json.dump({**answer, "runtime_s": time.monotonic() - began}, sys.stdout)


if __name__ == "__main__":
    main()
