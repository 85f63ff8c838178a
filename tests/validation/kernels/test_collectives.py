"""Measured collectives as exchanges on the networks of their systems."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.cost.collectives.collective_times import fastest_s
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import fitted_constants
from phaze.cost.kernels.link_constants import law_file, with_laws
from phaze.hardware.cluster_network import load_network
from phaze.hardware.network_tiers import LinkLaw, Medium
from phaze.validation.measured.measured_systems import system_of
from phaze.validation.measured.measurement_columns import Columns, read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.sets.collective_measurements import large, small
from phaze.workload.work import Collective

HEADER = "system,collective,ranks,ranks_per_node,bytes,time_us,library\n"


@pytest.fixture
def judge(tmp_path):
    def judged(*rows, which=large):
        path = tmp_path / "coll.csv"
        path.write_text(HEADER + "\n".join(rows) + "\n")
        columns = read_columns(path, TABLES["coll_ml_engineering"])
        assert isinstance(columns, Columns)
        return which(columns)

    return judged


def expected(network, family, collective, payload, ranks, stride=1):
    return float(fastest_s(collective, payload, with_laws(load_network(network), family), 0.0, ranks, stride))


def test_rungs_take_the_constants_of_all_chips_and_of_the_family(judge):
    found = judge("h200_sxm,all_reduce,8,8,16777216,100,NCCL")
    assert found.measured.tolist() == pytest.approx([1e-4])
    for rung, family in ((Fidelity.ANALYTIC, "generic"), (Fidelity.CALIBRATED, "hopper")):
        wanted = expected("hgx-h100", family, Collective.ALL_REDUCE, 16777216, 8)
        assert found.predicted[rung].tolist() == pytest.approx([wanted])
    assert found.predicted[Fidelity.ROOFLINE].tolist() == pytest.approx([16777216 / 450e9])


def test_ranks_on_several_nodes_share_adapters(judge):
    alone, together = judge(
        '"DGX A100 (8x, NVSwitch)",all_reduce,2,1,67108864,1,',
        '"DGX A100 (8x, NVSwitch)",all_reduce,8,4,67108864,1,',
    ).predicted[Fidelity.ROOFLINE]
    assert alone == pytest.approx(67108864 / 12.5e9)
    assert together == pytest.approx(67108864 / 4 / 12.5e9)


def test_what_is_left_out_is_counted(judge):
    rows = [
        "b60,all_gather,4,4,524288,100,oneCCL 2021",  # bytes of one rank: 2 MiB are gathered
        "h200_sxm,all_gather,4,4,524288,100,NCCL",
        "no such machine,all_reduce,4,4,16777216,100,",
        '"DGX A100 (8x, NVSwitch)",send_recv,2,2,30000000,50,',  # 600 GB/s
        '"DGX A100 (8x, NVSwitch)",send_recv,2,2,30000000,150,',
    ]
    found = judge(*rows)
    assert len(found.measured) == 2
    assert found.predicted[Fidelity.ROOFLINE][0] == pytest.approx(3 / 4 * 4 * 524288 / 32e9)
    assert sorted(found.excluded.values()) == [1, 1, 1]
    assert len(judge(*rows, which=small).measured) == 1


def test_host_and_copies_come_on_top(judge):
    gather, reduce = judge(
        "8x RTX 2080,all_gather,4,4,4194304,1,", "8x RTX 2080,all_reduce,4,4,4194304,1,"
    ).predicted[Fidelity.CALIBRATED]
    system = system_of("8x RTX 2080")
    network = with_laws(system.network, "turing")
    plain = fastest_s(Collective.ALL_REDUCE, 4194304, network, 0.0, 4)
    assert reduce == pytest.approx(float(plain) + system.host_s)
    plain = fastest_s(Collective.ALL_GATHER, 4194304, network, 0.0, 4)
    assert gather == pytest.approx(float(plain) + system.host_s + 3 * 4194304 / 448e9)


@pytest.mark.parametrize(
    "name", ["h100_sxm", "b200_sxm", "l40s", "GH200", "Titan RTX", "MI300X", "P100", "KNL"]
)
def test_systems_never_fitted_have_a_network(name):
    system = system_of(f"8x {name}")
    for family in (system.family, "generic"):
        seconds = fastest_s(
            Collective.ALL_REDUCE, np.array([1e6, 1e8]), with_laws(system.network, family), 0.0, 4
        )
        assert np.all(seconds > 0)


@pytest.mark.parametrize("medium", Medium)
def test_every_medium_has_constants_for_all_chips(medium):
    known = fitted_constants(LinkLaw, law_file(medium))
    assert "generic" in known
    assert all(one.error_pct or "constants of" in one.fitted_on for one in known.values())


def test_copies_of_another_systems_rows_are_left_out(judge):
    found = judge(
        "8x H100 NVSwitch,all_reduce,4,4,16777216,300,NCCL", "4x H100 NVL,send_recv,2,2,16777216,300,NCCL"
    )
    assert (len(found.measured), found.excluded) == (1, {"copies of another system's rows": 1})
