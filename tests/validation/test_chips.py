"""Names of chips as data sets spell them, and the templates that stand for them."""

import csv
import os
from pathlib import Path

import pytest

from phaze.validation.measured.measured_systems import chip_of

DATA = os.environ.get("DSE_DATA")
COLUMNS = ("device", "chip", "accelerator", "gpu", "gpu_per_stage_replica")
WITHOUT_TEMPLATE = {"TPU v1", "IPU GC200 (Mk2)", "IPU Bow", "WSE-2"}


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB SXM", "a100-80gb"),
        ("a100_80gb", "a100-80gb"),
        ("a100_sxm", "a100-80gb"),
        ("A100-SXM 40GB (DGX A100)", "a100"),
        ("4x A100 40GB (GCP a2-highgpu-4g)", "a100"),
        ("8x A100-SXM 40/80GB (p4d-class)", "a100"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA A100 - PCIe - 80 GB", "a100-pcie-80gb"),
        ("4x A100 PCIe, pairwise NVLink", "a100-pcie-80gb"),
        ("NVIDIA A30", "a30"),
        ("NVIDIA A40 48GB", "a40"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("h100_sxm", "h100"),
        ("DGX-H100", "h100"),
        ("NVIDIA H100-PCIe-80GB", "h100-pcie"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 96GB HBM2e 2.4TB/s 500W", "h100-96gb"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("GH200", "gh200"),
        ("GH200 96GB", "gh200-96gb"),
        ("NVIDIA H800 SXM5", "h800"),
        ("b200_sxm", "b200"),
        ("32x B200 (4 nodes)", "b200"),
        ("gb200", "gb200"),
        ("NVIDIA GB200 SXM", "gb200"),
        ("DGX-B300", "b300"),
        ("DGX-GB300", "gb300"),
        ("rtx_pro_6000_server", "rtx-pro-6000"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("l40s", "l40s"),
        ("Tesla V100", "v100"),
        ("DGX-2 V100", "v100"),
        ("4x V100 16GB (GCP n1)", "v100-16gb"),
        ("Tesla V100-PCIE-32GB", "v100-pcie"),
        ("Tesla T4", "t4"),
        ("Tesla P4", "p4"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Titan Xp", "titan-xp"),
        ("Titan X (Pascal) cluster", "titan-x-pascal"),
        ("GTX Titan X (Maxwell)", "titan-x-maxwell"),
        ("NVIDIA Titan RTX", "titan-rtx"),
        ("RTX-2080", "rtx-2080-ti"),
        ("AMD MI25", "mi25"),
        ("AMD Instinct MI210", "mi210"),
        ("AMD Instinct MI250", "mi250"),
        ("MI250X", "mi250x"),
        ("AMD MI300X", "mi300x"),
        ("AMD Radeon RX 7900XTX", "rx-7900-xtx"),
        ("b60", "arc-pro-b60"),
        ("TPU v4 (1 chip)", "tpuv4"),
        ("TPU v4i", "tpuv4i"),
        ("TPU-v5e", "tpuv5e"),
        ("TPU-v5p", "tpuv5p"),
        ("Google TPU v6e (Trillium)", "tpuv6e"),
        ("TPU-trillium", "tpuv6e"),
        ("TPU v7x Ironwood", "tpuv7"),
        ("Google TPU v7 (Ironwood), one chiplet", "tpuv7-chiplet"),
        ("TPU7x Ironwood (per device=1 of 2 dies)", "tpuv7-chiplet"),
        ("Intel(R) Gaudi(R) 2 AI Accelerator", "gaudi2"),
        ("Intel Gaudi 3", "gaudi3"),
        ("AWS Trainium1 (trn1.32xlarge: 16 chips / 32 NeuronCores-v2 per node)", "trainium1"),
        ("Trainium2", "trainium2"),
        ("KNL-7250", None),
    ],
)
def test_names_of_chips(name, chip):
    found = chip_of(name)
    assert (found.name if found else None) == chip


@pytest.mark.skipif(DATA is None, reason="DSE_DATA is not set")
def test_every_chip_of_the_measurements_has_a_template():
    names = set()
    for path in Path(DATA, "validation").glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        columns = [name for name in COLUMNS if name in rows[0]]
        if not columns or path.name.startswith("coll_"):
            columns.append("system")
        texts = {row[name] for row in rows for name in columns if name in row}
        names |= {part for text in texts for part in text.replace("+", ";").split(";")}
    assert len(names) > 80
    assert {name for name in names if chip_of(name) is None} == WITHOUT_TEMPLATE
