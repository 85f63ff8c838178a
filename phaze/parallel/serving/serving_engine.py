"""Inference engines as data: what their hosts and kernels add to passes, how much a pass takes, and their policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.parallel.serving.serving_plan import Policy
from phaze.yaml_file import checked, read_yaml

PASS_TOKENS = 8192
"""Prompt tokens that a pass of an engine takes by default (max_num_batched_tokens, max_num_tokens)."""

_Seconds = Annotated[float, Field(ge=0, le=10)]


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that an engine adds to every pass, for every sequence that it decodes, for every layer with experts.

    `request_s`: from a request to its place in the queue and from its first token to the client, together.
    """

    step_s: float = 0.0
    sequence_s: float = 0.0
    expert_layer_s: float = 0.0
    request_s: float = 0.0


NO_OVERHEADS = Overheads()


class EngineFit(BaseModel):
    """Fit of an engine's constants: the rows it saw, and the mean error in percent with none, with them, and on rows of
    models and chips that were left out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    to: str
    constants: tuple[str, ...]
    rows: int
    before_pct: float
    error_pct: float
    left_out_pct: float | None


class ServingEngine(BaseModel):
    """Inference engine.

    `step_s`: of every pass, on top of its kernels; `sequence_s`: of every sequence that it decodes; `expert_layer_s`:
    of every layer with experts; `request_s`: of every request, on the way to its place and back. `pass_tokens`: prompt
    tokens that a pass takes at most. `policies`: that it has, its own default first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    source: str
    step_s: _Seconds = 0.0
    sequence_s: _Seconds = 0.0
    expert_layer_s: _Seconds = 0.0
    request_s: _Seconds = 0.0
    pass_tokens: Annotated[int, Field(ge=1)] = PASS_TOKENS
    policies: Annotated[tuple[Policy, ...], Field(min_length=1)] = (Policy.CHUNKED, Policy.PREFILL_FIRST)
    fitted: tuple[EngineFit, ...] = ()

    @property
    def overheads(self) -> Overheads:
        """Seconds that it adds to passes."""
        return Overheads(self.step_s, self.sequence_s, self.expert_layer_s, self.request_s)


NO_ENGINE = ServingEngine(name="none", source="kernels alone, both policies")


def list_engines() -> tuple[str, ...]:
    """Names of the packaged engines."""
    return tuple(packaged(Catalogue.ENGINE))


def load_engine(name_or_path: str | Path) -> ServingEngine:
    """An engine by packaged name or file. Raises InputError."""
    path = find(Catalogue.ENGINE, name_or_path)
    return checked(ServingEngine, read_yaml(path), str(path))
