"""The best serving plan over all replica shapes, batches, chunks and pools of a space, or why nothing serves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from phaze.hardware.architecture import Architecture
from phaze.hardware.cluster_network import Network
from phaze.hardware.derived_figures import hbm_capacity_bytes, narrow_speed, peak_flops_per_s
from phaze.parallel.serving.pools.disaggregated_pools import decode_offers, pairs, prefill_offers
from phaze.parallel.serving.pools.one_pool import offered
from phaze.parallel.serving.pools.unlike_pools import UnlikePools
from phaze.parallel.serving.replicas.model_replica import Replica
from phaze.parallel.serving.replicas.replica_offers import Offers, PoolChoice, ServingChoice
from phaze.parallel.serving.serving_checker import check_serving_plan
from phaze.parallel.serving.serving_plan import Policy, Pool, Role, ServingPlan
from phaze.parallel.serving.serving_refusal import refusal
from phaze.parallel.serving.serving_requests import ServingOptions, Targets, Traffic
from phaze.parallel.serving.serving_space import ServingSpace
from phaze.parallel.serving.way_search import WaySearch, bounds_know


def serving_plan(choice: ServingChoice, space: ServingSpace) -> ServingPlan:
    """A choice with everything a user wants to know of it."""
    first, last = choice.parts[0], choice.parts[-1]
    tokens = choice.requests_per_s * space.traffic.mean_outputs
    waiting = float(first.offers.waiting_s[first.at])
    return ServingPlan(
        policy=choice.policy,
        pools=tuple(
            replace(
                _pool(part),
                chip=space.chip_of(part.role).name,
                drawn_w=joules * choice.requests_per_s / part.devices,
                energy_per_token_j=joules / space.traffic.mean_outputs,
            )
            for part, joules in zip(choice.parts, choice.request_j, strict=True)
        ),
        chunk_tokens=choice.chunk_tokens,
        ttft_s=choice.ttft_s,
        waiting_s=waiting,
        tpot_s=choice.tpot_s,
        longest_gap_s=max(float(last.offers.longest_gap_s[last.at]), choice.transfer_s),
        transfer_s=choice.transfer_s,
        requests_per_s=choice.requests_per_s,
        tokens_per_s=tokens,
        energy_per_token_j=sum(choice.request_j) / space.traffic.mean_outputs,
        prefill_mfu=_mfu(first, choice.ttft_s - waiting - space.options.engine.request_s, space),
        devices_given=space.devices,
        binding=choice.binding,
        prompts_per_pass=_most_prompts(choice, space),
        **_found(first.replica, space),
    )


def _found(replica: Replica, space: ServingSpace) -> dict[str, float]:
    """What prefixes and guesses save."""
    load, guessed = space.traffic_on(replica), space.options.speculation
    cached, loaded = load.known_shares
    each = 1.0 if guessed is None else load.later_tokens / load.decode_passes(guessed)
    return {"cached_share": cached, "loaded_share": loaded, "tokens_per_pass": each}


def _most_prompts(choice: ServingChoice, space: ServingSpace) -> int:
    """Prompts of a pass at most; those of a prefill pool are its batch."""
    if choice.policy is Policy.DISAGGREGATED:
        return int(choice.parts[0].offers.batch[choice.parts[0].at])
    return space.most_prompts(choice.chunk_tokens)


def _pool(part: PoolChoice) -> Pool:
    offers, at = part.offers, part.at
    return Pool(
        role=part.role,
        replicas=part.count,
        tensor_parallel=part.replica.grid.width,
        pipeline_parallel=part.replica.stages,
        expert_parallel=part.replica.together,
        batch=float(offers.batch[at]),
        sequences=float(offers.sequences[at]),
        weight_bytes=float(offers.memory.weight_bytes[at]),
        cache_bytes=float(offers.memory.cache_bytes[at]),
        working_bytes=float(offers.memory.working_bytes[at]),
        experts=part.replica.grid.expert_count,
        redundant_experts=part.replica.grid.redundant_experts,
        context_parallel=part.replica.grid.context_parallel,
        clock_hz=float(part.replica.grid.chip.table["clock_hz"][0]),
    )


def _mfu(part: PoolChoice, prefill_s: float, space: ServingSpace) -> float:
    """Model FLOPs of the prompts of one prefill over what the replica could do in its time, in its fastest format."""
    recipe, table = space.options.recipe, part.replica.grid.chip.table
    prompts = part.offers.batch[part.at] if part.role is Role.PREFILL else 1.0
    faster = narrow_speed(table, None if recipe is None else recipe.operands)
    peak = float((peak_flops_per_s(table) * faster)[0]) * part.replica.devices
    return (
        float(prompts) * part.replica.grid.prompt_flops(space.traffic_on(part.replica)) / (prefill_s * peak)
    )


def best_serving_plan(
    workload: str,
    architecture: Architecture,
    devices: int,
    network: Network,
    traffic: Traffic,
    targets: Targets | None = None,
    options: ServingOptions | None = None,
) -> ServingPlan:
    """The plan that serves most on `devices` devices, or an arrival rate on the fewest of them, within the targets.

    Exact over `ServingSpace` under its costs; ties go to fewer devices, then to faster tokens, then to what is
    enumerated first. Raises InputError for a workload without a key-value cache, InfeasibleError where nothing
    fits or keeps the targets.
    """
    return best_of(
        ServingSpace(
            workload,
            architecture,
            devices,
            network,
            traffic,
            targets or Targets(),
            options or ServingOptions(),
        )
    )


def best_of(space: ServingSpace) -> ServingPlan:
    """The best plan of a space. Raises as `best_serving_plan`."""
    if space.pool_chips is not None:
        return checked_plan(UnlikePools(space).best(), space)
    found = WaySearch(space).run() if bounds_know(space) else None
    if found is None:
        seen: list[Offers] = []
        found = min(choices(space, seen), key=lambda choice: choice.rank, default=None)
        if found is None:
            raise refusal(space, seen)
    return checked_plan(found, space)


def checked_plan(choice: ServingChoice, space: ServingSpace) -> ServingPlan:
    """A choice as a plan that contradicts neither itself nor the memory of its chips."""
    plan, o = serving_plan(choice, space), space.options
    tables = (part.replica.grid.chip.table for part in choice.parts)
    rooms = (float(hbm_capacity_bytes(t)[0]) * o.memory_share - o.prefix_cache_bytes for t in tables)
    check_serving_plan(plan, space.traffic, space.limits, tuple(rooms))
    return plan


def choices(space: ServingSpace, seen: list[Offers]) -> Iterator[ServingChoice]:
    """The best plan of every replica shape and policy that has one; all offers are added to `seen`."""
    if space.options.disaggregate is not True:
        for replica in space.decoding_replicas:
            for chunk in space.pass_sizes:
                offers, choice = offered(space, replica, chunk)
                seen.append(offers)
                if choice is not None:
                    yield choice
    if space.apart:
        prefill, decode = prefill_offers(space), decode_offers(space)
        seen += [offers for _, offers in (*prefill, *decode)]
        yield from pairs(space, prefill, decode)
