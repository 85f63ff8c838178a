"""One chip for a portfolio of models: what does each lose against a chip of its own?

A language model and two image networks, each trained on one device of 200 W, eight samples at a time. The
design is chosen so that the worst off loses least. Scaled down, so that it takes seconds, to a space in which only the
number of cores and the tensor cores' columns vary: leave out `fix` for the whole one.
"""

import phaze

MODELS = ("bert-base", "resnet18", "mobilenet-v2")
SCALED_DOWN = {
    "hbm": "hbm3x4",
    "tensor_core_rows": 128,
    "vector_core_alus": 512,
    "global_buffer_bytes": "32MiB",
}


def main() -> None:
    """Search and say who loses what."""
    found = phaze.explore(
        MODELS,
        power="200W",
        combine="worst",
        devices=1,
        global_batch=8,
        fix=SCALED_DOWN,
        time_limit="5min",
    )
    print(found)
    shares = found.document.portfolio.workloads
    losses = ", ".join(f"{name} {100 * share.regret:.1f} %" for name, share in shares.items())
    own = {name: share.own.id for name, share in shares.items()}
    print(
        f"\nOne chip for all, {found.best.id} with {found.best.area_mm2:.0f} mm2 and {found.best.tdp_w:.0f} W, costs "
        f"each model some throughput against a chip of its own: {losses}. Built apart, the {len(own)} models would "
        f"want {len(own)} chips of {len(set(own.values()))} designs: {', '.join(sorted(set(own.values())))}."
    )


if __name__ == "__main__":
    main()
