"""Rows of product sets as work: formats, scaling to 8 bits, what timing adds, and sets nobody has seen."""

from pathlib import Path

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.kernel_laws import kernels_s
from phaze.cost.kernels.quantise_kernel import PER_BLOCK, PER_TENSOR, TO_FP4, quantisation
from phaze.hardware.architecture import load_architecture, to_table
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import product
from phaze.validation.sets.kernels import gemm_measurements
from phaze.workload.work import Format


def table(header: str, *rows: str) -> Columns:
    cells = zip(*(row.split(",") for row in rows), strict=True)
    return Columns(Path("rows.csv"), dict(zip(header.split(","), cells, strict=True)), len(rows))


def calibrated(chip, *works):
    return kernels_s(works, to_table([load_architecture(chip)]), Fidelity.CALIBRATED)[0]


def test_formats_and_bytes():
    (gemm,) = gemm_measurements.product_of("fp16 storage, fp32 math", 64, 32, 128).gemms
    assert (gemm.operands, gemm.a_bytes) == (Format.FP32, 2 * 64 * 32)
    (gemm,) = gemm_measurements.product_of("fp8 (1x128/128x128 scaled), bf16 out", 64, 32, 128).gemms
    assert (gemm.operands, gemm.b_bytes, gemm.c_bytes) == (Format.FP8, 32 * 128, 2 * 64 * 128)
    (gemm,) = gemm_measurements.product_of("nvfp4", 64, 32, 128).gemms
    assert (gemm.operands, gemm.a_bytes, gemm.c_bytes) == (
        Format.FP4,
        (1 / 2 + 1 / 16) * 64 * 32,
        2 * 64 * 128,
    )
    assert gemm_measurements.product_of("int4_wo", 64, 32, 128) is None


def test_tensorrt_scales_activations_first_and_unknown_formats_are_counted():
    judged = gemm_measurements.aiconfigurator(
        table(
            "device,dtype,m,n,k,latency_ms,framework",
            "NVIDIA H200,fp8,512,1024,2048,1,TRTLLM 1.3",
            "NVIDIA H200,fp8_block,512,1024,2048,1,TRTLLM 1.3",
            "NVIDIA H200,fp8,512,1024,2048,1,VLLM 0.20",
            "NVIDIA H200,int4_wo,512,1024,2048,1,TRTLLM 1.3",
            "NVIDIA GB200,nvfp4,512,1024,2048,1,TRTLLM 1.3",
        )
    )
    work = product(1, 512, 2048, 1024, 1, operands=Format.FP8, result_bytes=2)
    whole, blocks, alone = calibrated(
        "h200", quantisation(512, 2048, PER_TENSOR), quantisation(512, 2048, PER_BLOCK), work
    )
    narrow = calibrated(
        "gb200", quantisation(512, 2048, TO_FP4), gemm_measurements.product_of("nvfp4", 512, 2048, 1024)
    )
    assert judged.predicted[Fidelity.CALIBRATED] == pytest.approx(
        [whole + alone, blocks + alone, alone, sum(narrow)]
    )
    assert judged.excluded == {gemm_measurements.UNKNOWN_FORMAT: 1}


def test_events_add_what_they_cost_on_a_machine():
    judged = gemm_measurements.neusight(
        table(
            "device,dtype,batch,m,n,k,latency_ms",
            "NVIDIA H100 80GB HBM3,fp16,16,1024,1024,64,0.05",
            "Tesla P100-PCIE-16GB,fp32,1,512,512,512,0.1",
            "Nobody's chip,fp32,1,512,512,512,0.1",
        )
    )
    (batched,) = calibrated("h100", product(16, 1024, 64, 1024, operands=Format.FP16))
    (single,) = calibrated("p100", product(1, 512, 512, 512, 4, operands=Format.FP32))
    assert judged.predicted[Fidelity.CALIBRATED] == pytest.approx([batched + 25e-6, single + 38e-6])
    assert judged.excluded == {gemm_measurements.NO_TEMPLATE: 1}
    assert (judged.predicted[Fidelity.ROOFLINE] < judged.predicted[Fidelity.CALIBRATED]).all()


def test_groups_of_equal_products_and_rates_in_place_of_times():
    columns = "device,dtype,groups,m_per_group,n,k,latency_us"
    judged = gemm_measurements.deepgemm(table(columns, "NVIDIA H800 SXM5,fp8,4,256,4096,7168,64.5"))
    work = product(4, 256, 7168, 4096, 1, operands=Format.FP8, result_bytes=2)
    assert judged.predicted[Fidelity.CALIBRATED] == pytest.approx(calibrated("h800", work))
    best = gemm_measurements.best_found(
        table("device,dtype,m,n,k,achieved_tflops", "NVIDIA H200 SXM,fp8,1000,1000,1000,2")
    )
    assert best.measured == pytest.approx([1e-3])
