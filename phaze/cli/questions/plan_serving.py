"""`dse plan serving`: the best way to serve requests on a cluster."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from phaze.cli.derived_options import takes
from phaze.errors import InputError
from phaze.inputs.option_models import PlanServingOptions

if TYPE_CHECKING:
    from phaze.explore.documents.serving_document import ServingDocument
    from phaze.parallel.serving import ServingPlan, ServingSpace
    from phaze.parallel.serving.request_simulation import Trial


@takes(PlanServingOptions)
def command(options: PlanServingOptions) -> None:
    """Plan the serving of a model: replicas, batches, chunks, pools, within latency targets.

    Without --rate, the most that the devices can serve; with it, the fewest devices that serve it.

    Examples:
        dse plan serving --arch h100 --workload llama3-70b --max-ttft 1s --max-tpot 50ms
        dse plan serving --arch h100 --workload llama3-8b --devices 4 --rate 20 --simulate 500 --json

    Exit codes: 3

    See also: dse plan for training; dse evaluate --mode decode for one batch.
    """
    asked = options.values
    from phaze.cli.console_output import console, print_json
    from phaze.inputs.input_files import record_question
    from phaze.report.terminal.plan_tables import print_serving
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        space, (plan, tried, found) = answer(asked)
        document = record_question(found, "plan serving", asked, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_serving(plan, space, tried, console())


def answer(
    asked: Mapping[str, Any],
) -> tuple[ServingSpace, tuple[ServingPlan, Trial | None, ServingDocument]]:
    """What is looked through as the options say, and the best of it. Raises InputError."""
    from phaze.explore.documents.serving_document import serve

    if asked["simulate"] is not None and asked["rate"] is None:
        raise InputError("--simulate needs --rate: requests arrive at some rate")
    space = _space(asked)
    return space, serve(space, asked["simulate"], asked["seed"])


def _space(asked: Mapping[str, Any]) -> ServingSpace:
    from phaze.cost.fidelity import Fidelity
    from phaze.hardware.cluster_network import load_network
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.named_choices import choose
    from phaze.inputs.task_inputs import one_workload
    from phaze.parallel.serving import ServingOptions, ServingSpace, Targets, Traffic
    from phaze.workload.operators.kv_cache import KvCache

    dispatch = asked["dispatch"]
    return ServingSpace(
        str(one_workload(asked["workload"])),
        find_architecture(asked["arch"]),
        asked["devices"],
        load_network(asked["network"]),
        Traffic(asked["prompt"], asked["output_tokens"], asked["rate"]),
        Targets(_seconds(asked["max_ttft"], "--max-ttft"), _seconds(asked["max_tpot"], "--max-tpot")),
        ServingOptions(
            kv_cache=choose(KvCache, asked["kv_cache"], "--kv-cache"),
            chunk=asked["chunk"],
            disaggregate=asked["disaggregate"],
            dispatch_s=0.0 if dispatch is None else _seconds(dispatch, "--dispatch"),
            rung=choose(Fidelity, asked["rung"], "--rung"),
        ),
    )


def _seconds(text: str | None, name: str) -> float:
    """A time; infinite where none is given."""
    from phaze.quantity import parse_time

    return math.inf if text is None else parse_time(text, name)
