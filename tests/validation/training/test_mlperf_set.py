"""MLPerf's rows as training runs: which are kept, and on what network."""

from pathlib import Path

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.training import mlperf_runs

BERT, RESNET = "BERT-large pretraining (MLPerf, seq 512 packed/unpadded)", "ResNet-50 v1.5 224x224 (ImageNet)"
NAMES = (
    *("system", "accelerator", "benchmark", "n_accelerators", "global_batch"),
    *("samples_per_s_logged", "samples_per_s_incl_eval"),
)
H100 = "NVIDIA H100-SXM5-80GB"


def throughput(*rows):
    text = dict(zip(NAMES, zip(*(map(str, row) for row in rows), strict=True), strict=True))
    return mlperf_runs.throughput(Columns(Path("rows.csv"), text, len(rows)))


def test_an_iteration_lasts_a_batch_over_the_logged_rate():
    judged = throughput(("one", H100, RESNET, 8, 3200, 56000, 50000), ("one", H100, BERT, 8, 768, "", 7680))
    assert judged.measured == pytest.approx([3200 / 56000, 0.1])
    assert judged.predicted[Fidelity.CALIBRATED] == pytest.approx(judged.measured, rel=0.25)


def test_half_of_a_sample_is_padding_and_few_positions_are_scored():
    """Multiply-accumulates of 256 of 512 tokens, and of 38 that get scores of the vocabulary."""
    chain = mlperf_runs._software(BERT)[0].chain(1, 1)
    blocks = 24 * (12 * 1024**2 + 2 * 256 * 1024) * 256
    head = 38 * (1024**2 + 1024 * 30522)
    assert chain.model_flops == 6.0 * (blocks + head)


def test_what_is_left_out_is_counted():
    judged = throughput(
        ("4xXE8545x4A100", "NVIDIA A100-SXM-80GB", BERT, 16, 448, 2800, ""),
        ("G593", "Unheard of", BERT, 8, 448, 2800, ""),
        ("G593", H100, BERT, 8, 450, 2800, ""),
        ("G593", H100, BERT, 8, 448, 2800, ""),
    )
    assert len(judged.measured) == 1
    assert judged.excluded == {
        mlperf_runs.UNKNOWN_NODES: 1,
        "no template of this chip": 1,
        mlperf_runs.UNEVEN: 1,
    }


@pytest.mark.parametrize(
    ("system", "accelerator", "devices", "name"),
    [
        ("8xBM.GPU", H100, 64, None),
        ("primergy", "NVIDIA A100-PCIe-80GB", 10, None),
        ("eos_n8_ngc23.04_pytorch", H100, 64, "hgx-h100"),
        ("1xBM.GPU", H100, 8, "hgx-h100"),
        ("7920T_2xA5000", "NVIDIA RTX A5000", 2, "pcie4"),
        ("SR670", "NVIDIA A100-SXM4-40GB", 4, "hgx-a100"),
        ("HLS", "Intel Gaudi2", 8, "default"),
    ],
)
def test_networks_of_systems(system, accelerator, devices, name):
    found = mlperf_runs.network_of(system, accelerator, devices)
    assert (found and found.name) == name


@pytest.mark.parametrize(
    "accelerator",
    [
        "NVIDIA H100-PCIe-80GB",
        "NVIDIA H200-SXM-141GB",
        "NVIDIA L40S",
        "NVIDIA A30",
        "NVIDIA A40",
        "AMD 7900XTX",
    ],
)
def test_every_accelerator_has_a_prediction(accelerator):
    judged = throughput(
        ("one", accelerator, BERT, 4, 256, 900, ""), ("one", accelerator, RESNET, 4, 256, 900, "")
    )
    assert (judged.predicted[Fidelity.CALIBRATED] > judged.predicted[Fidelity.ROOFLINE]).all()
