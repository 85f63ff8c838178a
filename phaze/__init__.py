"""phaze: the best accelerator, and the best way to spread a model over N of them, with a proof.

`phaze.explore`, `phaze.report` and `phaze.workloads` are functions and rooms at once: a package and a function cannot
both have a name, so these packages can be called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature

    from phaze.api import (
        Calibrated,
        Certified,
        Compared,
        Differed,
        Evaluated,
        Explained,
        Explored,
        ExploredService,
        Graph,
        MeasuredServing,
        NetworkFitted,
        ParetoFront,
        Planned,
        PlannedPools,
        PlannedServing,
        Swept,
        Table,
        Validated,
        Varied,
        archs,
        archs_export,
        calibrate,
        certify,
        compare,
        diff,
        evaluate,
        explain,
        explore,
        explore_service,
        export,
        frameworks,
        graph,
        measure_gpu,
        measure_serving,
        measure_template,
        networks,
        networks_choose,
        networks_cost,
        networks_fit,
        pareto,
        plan,
        plan_pools,
        plan_serving,
        plans,
        replay,
        report,
        solve_fleet,
        solve_hosts,
        solve_instances,
        solve_layers,
        solve_placement,
        solve_schedule,
        spaces,
        sweep,
        trace,
        validate,
        whatif,
        whatif_bubbles,
        whatif_colocate,
        whatif_failures,
    )
    from phaze.workload.torch_export.torch_tracing import from_torch

__all__ = [
    "Calibrated",
    "Certified",
    "Compared",
    "Differed",
    "Evaluated",
    "Explained",
    "Explored",
    "ExploredService",
    "Graph",
    "MeasuredServing",
    "NetworkFitted",
    "ParetoFront",
    "Planned",
    "PlannedPools",
    "PlannedServing",
    "Swept",
    "Table",
    "Validated",
    "Varied",
    "__version__",
    "archs",
    "archs_export",
    "calibrate",
    "certify",
    "compare",
    "diff",
    "evaluate",
    "explain",
    "explore",
    "explore_service",
    "export",
    "frameworks",
    "from_torch",
    "graph",
    "measure_gpu",
    "measure_serving",
    "measure_template",
    "networks",
    "networks_choose",
    "networks_cost",
    "networks_fit",
    "pareto",
    "plan",
    "plan_pools",
    "plan_serving",
    "plans",
    "replay",
    "report",
    "solve_fleet",
    "solve_hosts",
    "solve_instances",
    "solve_layers",
    "solve_placement",
    "solve_schedule",
    "spaces",
    "sweep",
    "trace",
    "validate",
    "whatif",
    "whatif_bubbles",
    "whatif_colocate",
    "whatif_failures",
    "workloads",
]

__version__ = "0.1.0"

_CALLABLE_ROOMS = ("explore", "report", "workloads")
_ELSEWHERE = {"from_torch": "phaze.workload.torch_export.torch_tracing"}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for: `import phaze` alone stays cheap."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    if name in _CALLABLE_ROOMS:
        return import_module(f"phaze.{name}")
    return getattr(import_module(_ELSEWHERE.get(name, "phaze.api")), name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})


class _CallableRoom(ModuleType):
    """A room that calls the function of the same name in `phaze.api`."""

    @property
    def _function(self) -> Any:  # noqa: ANN401 - of any verb
        return getattr(import_module("phaze.api"), self.__name__.rpartition(".")[2])

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - those of the function
        """Call the function of the same name: see `phaze.api`."""
        return self._function(*arguments, **named)

    @property
    def __signature__(self) -> Signature:
        """Signature of the function, for `help` and notebooks."""
        from inspect import signature

        return signature(self._function)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override] # a docstring like any other
        """Docstring of the function: that is what `help` is asked for."""
        doc: str | None = self._function.__doc__
        return doc


class _Face(ModuleType):
    """This package: it makes rooms callable as soon as the import system binds them here."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _CALLABLE_ROOMS and isinstance(value, ModuleType):
            value.__class__ = _CallableRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
