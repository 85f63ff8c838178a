"""A chain of format `dse-placement/1` as a general problem of the same answer."""

from __future__ import annotations

from phaze.solvers.placement.chain.instance import Optimizer, PlacementProblem
from phaze.solvers.placement.general.problem import (
    PHAZE,
    DeviceType,
    GeneralProblem,
    Model,
    Recompute,
    Schedule,
)


def from_chain(problem: PlacementProblem) -> GeneralProblem:
    """The chain with PHAZE's conventions, one device type and one width for all stages."""
    return GeneralProblem(
        microbatches_per_batch=problem.microbatches_per_batch,
        link_bandwidth_bytes_per_s=problem.link_bandwidth_bytes_per_s,
        optimizer_state_ratio=1.0 if problem.optimizer is Optimizer.ADAM else 0.0,
        schedule=Schedule.ONE_F_ONE_B,
        virtual_stages=1,
        recompute=(Recompute.FULL if problem.activation_recomputation else Recompute.NONE,),
        zero=(0,),
        uniform_width=True,
        conventions=PHAZE,
        device_types=(DeviceType("device", problem.num_devices, problem.device_memory_bytes),),
        layer_ids=problem.layer_ids,
        edges=tuple(edge[:2] for edge in problem.models[0].edges),
        models=tuple(
            Model(
                device_type=0,
                tensor_parallel=model.tensor_parallel,
                forward_s=model.forward_s,
                input_gradient_s=model.backward_s,
                weight_gradient_s=(0.0,) * len(model.backward_s),
                parameter_bytes=model.parameter_bytes,
                activation_bytes=model.activation_bytes,
                is_tensor_parallel=model.is_tensor_parallel,
                boundary_bytes=tuple(edge[2] for edge in model.edges),
            )
            for model in problem.models
        ),
    )
