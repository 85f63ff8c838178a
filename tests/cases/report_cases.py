"""A plan of a small decoder, evaluated and played again."""

from __future__ import annotations

from small_cases import small_decoder

from phaze.explore.answers.main_job import evaluate
from phaze.explore.plans.plan_replay import replay_record
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network


def played(folder, chip="tpuv4", **held):
    """(result, plan in time) on eight devices, some choices held."""
    task = Task(small_decoder(folder), 8, load_network(), global_batch=16, held=held)
    architecture = load_architecture(chip)
    result = evaluate(task, architecture).workloads[task.workload.name]
    return result, replay_record(task, architecture, result.placement.plan, result.iteration_time_s)
