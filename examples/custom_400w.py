"""H100 against a custom chip of 400 W for training Llama 3 70B on 256 devices.

How much of an H100's throughput is left at 400 W on a chip made for the model? Scaled down, so that it takes seconds,
to a space in which only the number of cores and the tensor cores' columns vary, and to the plans that Megatron-LM
runs: leave out `fix` and `plans` for the whole.
"""

import phaze

MODEL = "llama3-70b"
DEVICES = 256
SCALED_DOWN = {
    "hbm": "hbm3x6",
    "tensor_core_rows": 128,
    "vector_core_alus": 1024,
    "global_buffer_bytes": "32MiB",
}
PLANS = "megatron"


def main() -> None:
    """Search, evaluate an H100, and compare."""
    custom = phaze.explore(
        MODEL, power="400W", devices=DEVICES, node="N5", fix=SCALED_DOWN, plans=PLANS, time_limit="5min"
    )
    h100 = phaze.evaluate("h100", MODEL, devices=DEVICES, plans=PLANS)
    print(custom)
    ours, theirs = custom.best.workloads[MODEL], h100.result
    fast = ours.throughput_samples_per_s / theirs.throughput_samples_per_s
    power = custom.best.tdp_w / h100.design.tdp_w
    print(
        f"\n{custom.best.id} at {custom.best.tdp_w:.0f} W and {custom.best.area_mm2:.0f} mm2 trains {MODEL} at "
        f"{ours.throughput_samples_per_s:.1f} samples/s, {fast:.2f} times an H100's "
        f"{theirs.throughput_samples_per_s:.1f} at {h100.design.tdp_w:.0f} W: {fast / power:.2f} times the throughput "
        f"per watt. Within the model no chip of the space beats it by more than {100 * custom.certificate.gap:.1f} %."
    )


if __name__ == "__main__":
    main()
