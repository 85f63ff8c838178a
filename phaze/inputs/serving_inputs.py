"""From options to the question of a serving plan: the load as it is, latency targets, and software."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.errors import InputError
from phaze.inputs.economic_inputs import make_economics
from phaze.inputs.options.offered_values import NGRAM
from phaze.inputs.options.serving_options import PlanServingOptions

if TYPE_CHECKING:
    from phaze.explore.documents.serving_document import ServingDocument
    from phaze.hardware.architecture import Architecture
    from phaze.parallel.serving import ServingPlan, ServingSpace, Traffic
    from phaze.parallel.serving.load.recorded_load import RecordedLoad
    from phaze.parallel.serving.load.speculation import Speculation
    from phaze.parallel.serving.serving_space import PoolChips
    from phaze.parallel.serving.serving_trial import Trial
    from phaze.quantity import Quantity
    from phaze.workload.expert_load import ExpertLoad


def serving_answer(
    options: PlanServingOptions,
) -> tuple[ServingSpace, tuple[ServingPlan, Trial | None, ServingDocument]]:
    """Space of serving plans as the options say, and the best of it. Raises InputError."""
    from phaze.explore.documents.serving_document import serve

    space = _space(options)
    if options.simulate is not None and space.traffic.rate_per_s is None and space.traffic.clients is None:
        told = "--rate or --concurrency" if options.trace is None else "--rate, --concurrency or arrival_s"
        raise InputError(f"--simulate needs {told}: requests arrive at some rate, or from clients")
    return space, serve(space, options.simulate, options.seed, make_economics(options))


def _space(options: PlanServingOptions) -> ServingSpace:
    from phaze.cost.fidelity import Fidelity
    from phaze.hardware.architecture import to_table
    from phaze.hardware.cluster_network import load_network
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.named_choices import choose
    from phaze.inputs.recipe_inputs import served_recipe
    from phaze.inputs.task_inputs import cache_format
    from phaze.inputs.workload_sources import one_workload
    from phaze.parallel.serving import ServingOptions, ServingSpace, Targets
    from phaze.parallel.serving.serving_engine import NO_ENGINE, load_engine
    from phaze.workload.operators.kv_cache import KvCache

    dispatch, chip, pools = options.dispatch, find_architecture(options.arch), _pool_chips(options)
    return ServingSpace(
        str(one_workload(options.workload)),
        chip,
        options.devices,
        load_network(options.network),
        _load(options),
        Targets(_seconds(options.max_ttft, "--max-ttft"), _seconds(options.max_tpot, "--max-tpot")),
        ServingOptions(
            kv_cache=choose(KvCache, options.kv_cache, "--kv-cache"),
            kv_cache_format=cache_format(options.kv_cache_format),
            recipe=next(served_recipe(options.recipe, to_table([one])) for one in _chips(chip, pools)),
            chunk=options.chunk,
            disaggregate=options.disaggregate if pools is None or options.disaggregate is False else True,
            dispatch_s=0.0 if dispatch is None else _seconds(dispatch, "--dispatch"),
            rung=choose(Fidelity, options.rung, "--rung"),
            engine=NO_ENGINE if options.engine is None else load_engine(options.engine),
            speculation=_speculation(options),
            prefix_cache_bytes=_bytes(options.prefix_cache, "--prefix-cache"),
            host_cache_bytes=_bytes(options.host_cache, "--host-cache"),
            context_parallel=options.context_parallel,
            expert_load=expert_load(options.expert_skew, options.redundant_experts),
        ),
        pool_chips=pools,
    )


def _pool_chips(options: PlanServingOptions) -> PoolChips | None:
    """Chips of pools, where they are told. Raises InputError."""
    from phaze.inputs.architecture_names import find_architecture
    from phaze.parallel.serving.serving_space import PoolChips
    from phaze.quantity import parse_power

    caps = {"prefill_w": options.prefill_power, "decode_w": options.decode_power}
    told = {
        name: parse_power(watts, f"--{name[:-2]}-power") for name, watts in caps.items() if watts is not None
    }
    if options.decode_arch is None and not told:
        return None
    decode = None if options.decode_arch is None else find_architecture(options.decode_arch)
    return PoolChips(decode, **told)


def _chips(chip: Architecture, pools: PoolChips | None) -> list[Architecture]:
    """The chips of all pools."""
    return [chip] if pools is None or pools.decode is None else [chip, pools.decode]


def _load(options: PlanServingOptions) -> Traffic:
    """Requests of one kind, or as they were recorded, and what is known of their prompts already. Raises InputError."""
    from phaze.parallel.serving import Traffic
    from phaze.parallel.serving.load.recorded_load import hit_tokens

    shares = _hit_shares(options)
    recorded = None if options.trace is None else _recorded(options, options.trace)
    _check_caches(options, recorded)
    shared = options.prefix_cache is not None
    if recorded is not None:
        known = recorded if shares is None else recorded.with_hits(*shares)
        return Traffic.of(known, options.rate, options.concurrency, shared=shared)
    import numpy as np

    found, from_host = hit_tokens(np.array([options.prompt]), *(shares or (0.0, 0.0)))
    hits = int(found[0]), int(from_host[0])
    return Traffic(
        options.prompt, options.output_tokens, options.rate, options.concurrency, *hits, shared=shared
    )


def _recorded(options: PlanServingOptions, path: str | Path) -> RecordedLoad:
    from phaze.parallel.serving.load.recorded_load import read_trace

    defaults = PlanServingOptions.defaults()
    for name in ("prompt", "output_tokens"):
        if getattr(options, name) != defaults[name]:
            raise InputError(f"--{name.replace('_', '-')} is not for a trace, which has lengths of its own")
    return read_trace(Path(path), options.prefix_block)


def _hit_shares(options: PlanServingOptions) -> tuple[float, float] | None:
    """Shares of every prompt that devices and hosts hold; None where they are not told. Raises InputError."""
    if options.prefix_hits is None and options.host_hits is None:
        return None
    shares = options.prefix_hits or 0.0, options.host_hits or 0.0
    if not (min(shares) >= 0 and sum(shares) <= 1):
        raise InputError(
            f"--prefix-hits {shares[0]:g} and --host-hits {shares[1]:g} are shares of a prompt: of 0 to 1 together"
        )
    return shares


def _check_caches(options: PlanServingOptions, recorded: RecordedLoad | None) -> None:
    """Raises InputError where nothing says what a cache holds, or two things do."""
    told = options.prefix_hits is not None or options.host_hits is not None
    hashes = recorded is not None and any(recorded.blocks)
    if options.host_cache is not None and (told or not hashes):
        raise InputError(
            "--host-cache is for a trace with prefix_hashes, from which hits follow; give known hits as --host-hits"
        )
    if options.prefix_cache is not None and not (told or hashes):
        raise InputError(
            "--prefix-cache needs prompts that begin alike: a --trace with prefix_hashes, or --prefix-hits SHARE"
        )
    if options.prefix_cache is not None and told and hashes:
        raise InputError(
            "hits follow from --prefix-cache and the trace's prefix_hashes: leave out the shares"
        )


def _speculation(options: PlanServingOptions) -> Speculation | None:
    """Tokens that are guessed. Raises InputError."""
    from phaze.parallel.serving.load.speculation import Speculation

    chance, length = options.acceptance, options.acceptance_length
    if options.draft is None:
        for name in ("draft_tokens", "acceptance", "acceptance_length"):
            if getattr(options, name) != PlanServingOptions.defaults()[name]:
                raise InputError(f"--{name.replace('_', '-')} needs --draft: a model, or {NGRAM}")
        return None
    if (chance is None) == (length is None):
        raise InputError(
            "--draft needs either --acceptance, the chance that a guess is accepted, or --acceptance-length, the "
            "tokens that a pass makes on average"
        )
    draft = None if options.draft == NGRAM else options.draft
    if length is not None:
        return Speculation.of_length(options.draft_tokens, length, draft)
    return Speculation(options.draft_tokens, chance or 0.0, draft)


def expert_load(skew: float | None, redundant: int | None) -> ExpertLoad | None:
    """The load of experts by `--expert-skew` and `--redundant-experts`; None where it is even. Raises InputError."""
    from phaze.workload.expert_load import ExpertLoad

    if not skew and redundant is not None:
        raise InputError(
            "--redundant-experts needs --expert-skew: where all are wanted alike, none needs a copy"
        )
    return ExpertLoad(skew, redundant) if skew else None


def _seconds(text: Quantity | None, name: str) -> float:
    """A time; infinite where none is given."""
    from phaze.quantity import parse_time

    return math.inf if text is None else parse_time(text, name)


def _bytes(text: Quantity | None, name: str) -> float:
    """A size; none where none is given."""
    from phaze.quantity import parse_size

    return 0.0 if text is None else parse_size(text, name)
