"""The figures of a chosen plan, as it is reported."""

from __future__ import annotations

from phaze.cost.energy import static_w
from phaze.hardware.derived import peak_flops_per_s
from phaze.placement.serving.choice import Choice, Part
from phaze.placement.serving.plan import Pool, Role, ServingPlan
from phaze.placement.serving.space import ServingSpace


def serving_plan(choice: Choice, space: ServingSpace) -> ServingPlan:
    """A choice with everything a user wants to know of it."""
    first, last = choice.parts[0], choice.parts[-1]
    tokens = choice.requests_per_s * space.traffic.output_tokens
    waiting = float(first.offers.waiting_s[first.at])
    return ServingPlan(
        policy=choice.policy,
        pools=tuple(_pool(part) for part in choice.parts),
        chunk_tokens=choice.chunk_tokens,
        ttft_s=choice.ttft_s,
        waiting_s=waiting,
        tpot_s=choice.tpot_s,
        longest_gap_s=max(float(last.offers.longest_gap_s[last.at]), choice.transfer_s),
        transfer_s=choice.transfer_s,
        requests_per_s=choice.requests_per_s,
        tokens_per_s=tokens,
        energy_per_token_j=_request_j(choice, space) / space.traffic.output_tokens,
        prefill_mfu=_mfu(first, choice.ttft_s - waiting, space),
        devices_given=space.devices,
        binding=choice.binding,
    )


def _pool(part: Part) -> Pool:
    offers, at = part.offers, part.at
    return Pool(
        role=part.role,
        replicas=part.count,
        tensor_parallel=part.replica.grid.width,
        pipeline_parallel=part.replica.stages,
        batch=float(offers.batch[at]),
        sequences=float(offers.sequences[at]),
        weight_bytes=float(offers.memory.weight_bytes[at]),
        cache_bytes=float(offers.memory.cache_bytes[at]),
        working_bytes=float(offers.memory.working_bytes[at]),
    )


def _request_j(choice: Choice, space: ServingSpace) -> float:
    """Joules of one request: what happens for it, and what flows meanwhile in all devices in use."""
    devices = sum(part.devices for part in choice.parts)
    standing = float(static_w(space.chip.table)[0]) * devices / choice.requests_per_s
    return standing + sum(float(part.offers.joules[part.at]) for part in choice.parts)


def _mfu(part: Part, prefill_s: float, space: ServingSpace) -> float:
    """Model FLOPs of the prompts of one prefill over what the replica could do in its time."""
    prompts = part.offers.batch[part.at] if part.role is Role.PREFILL else 1.0
    peak = float(peak_flops_per_s(space.chip.table)[0]) * part.replica.devices
    return float(prompts) * part.replica.grid.prompt_flops / (prefill_s * peak)
