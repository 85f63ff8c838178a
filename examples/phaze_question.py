"""PHAZE's question: the best common architecture for training several language models under one area budget.

PHAZE (Wang et al., ICML 2024) searched 29 360 architectures within the area of TPU v4's shape for the highest mean
throughput of nine models on 1024 devices. Here, so that it takes seconds: two of the models, 2 devices, memories
of 80 GiB, tensor cores of 128 rows and columns, buffers of 32 MiB. Leave out `fix` and raise `devices` for the whole.
"""

import phaze

SCALED_DOWN = {
    "hbm_capacity_bytes": "80GiB",
    "tensor_core_rows": 128,
    "tensor_core_columns": 128,
    "global_buffer_bytes": "32MiB",
}


def main() -> None:
    """Search and say what was found."""
    found = phaze.explore(
        ["bert-large", "opt-350m"],
        space="phaze",
        fix=SCALED_DOWN,
        devices=2,
        combine="throughput",
        time_limit="5min",
    )
    best, proof = found.best, found.certificate
    print(found)
    rates = ", ".join(
        f"{r.throughput_samples_per_s:,.0f} samples/s on {w}" for w, r in best.workloads.items()
    )
    print(
        f"\nOf {proof.space_size:,} points within PHAZE's area budget, the best common design is {best.id} with "
        f"{best.area_mm2:.0f} mm2 by PHAZE's area law: {rates}. The bound on all others leaves at most "
        f"{100 * proof.gap:.2f} %, after {proof.evaluated:,} evaluations."
    )
    for name, share in found.document.portfolio.workloads.items():
        print(f"{name} loses {100 * share.regret:.1f} % of its throughput against a design of its own.")


if __name__ == "__main__":
    main()
