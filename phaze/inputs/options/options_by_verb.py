"""Options of each verb that answers a question."""

from __future__ import annotations

from collections.abc import Mapping

from phaze.inputs.options.option_model import Options
from phaze.inputs.options.plan_options import CompareOptions, EvaluateOptions, PlanOptions, PlanPoolsOptions
from phaze.inputs.options.search_options import RunOptions, SweepOptions
from phaze.inputs.options.serving_options import PlanServingOptions
from phaze.inputs.options.whatif_options import (
    WhatIfBubblesOptions,
    WhatIfColocateOptions,
    WhatIfFailuresOptions,
    WhatIfOptions,
)

MODELS: Mapping[str, type[Options]] = {
    "run": RunOptions,
    "sweep": SweepOptions,
    "evaluate": EvaluateOptions,
    "compare": CompareOptions,
    "plan": PlanOptions,
    "plan pools": PlanPoolsOptions,
    "plan serving": PlanServingOptions,
    "whatif": WhatIfOptions,
    "whatif bubbles": WhatIfBubblesOptions,
    "whatif colocate": WhatIfColocateOptions,
    "whatif failures": WhatIfFailuresOptions,
}
"""By verb."""
