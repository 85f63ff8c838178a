"""The best serving plan from what was asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.explore.documents.serving_document import ServingDocument
    from phaze.inputs.option_models import PlanServingOptions
    from phaze.parallel.serving import ServingPlan, ServingSpace
    from phaze.parallel.serving.request_simulation import Trial
    from phaze.quantity import Quantity


def serving_answer(
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
