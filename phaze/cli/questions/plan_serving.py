"""`dse plan serving`: the best way to serve requests on a cluster."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from phaze.cli.derived_options import takes
from phaze.errors import InputError
from phaze.inputs.option_models import PlanServingOptions

if TYPE_CHECKING:
    from phaze.explore.documents.serving_document import ServingDocument
    from phaze.parallel.serving import ServingPlan, ServingSpace
    from phaze.parallel.serving.request_simulation import Trial
    from phaze.quantity import Quantity


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
    from phaze.cli.console_output import console, print_json
    from phaze.inputs.input_files import record_question
    from phaze.report.terminal.plan_tables import print_serving
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        space, (plan, tried, found) = answer(options)
        document = record_question(found, "plan serving", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_serving(plan, space, tried, console())


def answer(
    options: PlanServingOptions,
) -> tuple[ServingSpace, tuple[ServingPlan, Trial | None, ServingDocument]]:
    """Space of serving plans as the options say, and the best of it. Raises InputError."""
    from phaze.explore.documents.serving_document import serve

    if options.simulate is not None and options.rate is None:
        raise InputError("--simulate needs --rate: requests arrive at some rate")
    space = _space(options)
    return space, serve(space, options.simulate, options.seed)


def _space(options: PlanServingOptions) -> ServingSpace:
    from phaze.cost.fidelity import Fidelity
    from phaze.hardware.cluster_network import load_network
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.named_choices import choose
    from phaze.inputs.task_inputs import one_workload
    from phaze.parallel.serving import ServingOptions, ServingSpace, Targets, Traffic
    from phaze.workload.operators.kv_cache import KvCache

    dispatch = options.dispatch
    return ServingSpace(
        str(one_workload(options.workload)),
        find_architecture(options.arch),
        options.devices,
        load_network(options.network),
        Traffic(options.prompt, options.output_tokens, options.rate),
        Targets(_seconds(options.max_ttft, "--max-ttft"), _seconds(options.max_tpot, "--max-tpot")),
        ServingOptions(
            kv_cache=choose(KvCache, options.kv_cache, "--kv-cache"),
            chunk=options.chunk,
            disaggregate=options.disaggregate,
            dispatch_s=0.0 if dispatch is None else _seconds(dispatch, "--dispatch"),
            rung=choose(Fidelity, options.rung, "--rung"),
        ),
    )


def _seconds(text: Quantity | None, name: str) -> float:
    """A time; infinite where none is given."""
    from phaze.quantity import parse_time

    return math.inf if text is None else parse_time(text, name)
