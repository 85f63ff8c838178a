"""WHAM's question: throughput per watt of TDP, with a design for every pipeline stage against one for all.

WHAM (Adnan et al., 2024) grows cores along the critical path of each stage, then puts stages together. Here, so that
it takes seconds: GPT-2 XL on 8 devices behind PCIe, whose slow links make a pipeline pay, and a space in which only the
number of cores and the tensor cores' columns vary. Leave out `fix` and `network` for the whole question.
"""

import phaze

MODEL = "gpt2-xl"
SCALED_DOWN = {
    "hbm": "hbm3x4",
    "tensor_core_rows": 128,
    "vector_core_alus": 512,
    "global_buffer_bytes": "32MiB",
}


def main() -> None:
    """Search, and compare the two answers it gives."""
    found = phaze.explore(
        MODEL,
        power="250W",
        fix=SCALED_DOWN,
        network="pcie3",
        devices=8,
        global_batch=16,
        objective="throughput_per_tdp",
        strategy="wham",
        designs="per-stage",
        time_limit="5min",
    )
    print(found)
    wham, distance = found.document.wham, found.document.strategy.distance
    one, own = wham.one, wham.per_stage
    print(
        f"\nOne design for all stages, {one.id}, gives {1e3 * one.value:.3f} samples/s per kW after {one.evaluated} "
        f"evaluations, {100 * distance.share:.2f} % below the certified optimum. A design per stage, "
        f"{own.distinct_designs} different ones in {len(own.stages)} stages, gives {1e3 * own.value:.3f}: "
        f"{100 * max(own.gain, 0.0):.2f} % more."
    )
    for number, stage in enumerate(own.stages, 1):
        print(
            f"  stage {number}: {len(stage.layers)} layers on {stage.id}, {1e3 * stage.load_s:.2f} ms a microbatch"
        )


if __name__ == "__main__":
    main()
