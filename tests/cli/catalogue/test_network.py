"""`dse network cost` and `dse network fit`."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from phaze.cli.main import app
from phaze.cost.collectives.collective_times import fastest_s
from phaze.cost.kernels.link_constants import LIBRARY
from phaze.errors import InputError
from phaze.hardware.cluster_network import Network, load_network, network_yaml
from phaze.hardware.network_tiers import LinkLaw, Medium, Tier
from phaze.validation.fits.collective_network_fit import fit_network, read_samples
from phaze.workload.work import Collective

TRUTH = Network(
    name="truth",
    algorithms=LIBRARY,
    tiers=(
        Tier(devices=8, bandwidth_bytes_per_s=400e9, law=LinkLaw(6e-6, 1e-6, 0.8, delta=0.3, ramp_s=2e-5)),
        Tier(devices=None, medium=Medium.ADAPTER, bandwidth_bytes_per_s=40e9, law=LinkLaw(2e-5, 5e-6, 0.7)),
    ),
)


def run(*arguments):
    return CliRunner().invoke(app, ["network", *map(str, arguments)])


@pytest.fixture
def measurements(tmp_path):
    """Times of a network that is known, as a file."""
    path = tmp_path / "mine.csv"
    sizes = 1e4 * 8.0 ** np.arange(6)
    groups = ((2, 2, 1), (4, 4, 1), (8, 8, 1), (16, 8, 1), (8, 2, 4))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["collective", "ranks", "ranks_per_node", "bytes", "time_us"])
        for kind in (Collective.ALL_REDUCE, Collective.ALL_GATHER):
            for ranks, together, stride in groups:
                for size, seconds in zip(
                    sizes, fastest_s(kind, sizes, TRUTH, 0.0, ranks, stride), strict=True
                ):
                    writer.writerow([kind.value, ranks, together, size, seconds * 1e6])
    return path


def test_the_curve_of_a_network():
    result = run("cost", "hgx-h100", "--devices", 8, "--sizes", "1KiB,1GiB", "--json")
    assert result.exit_code == 0
    short, long = json.loads(result.stdout)["rows"]
    assert (short["size_bytes"], long["algorithm"]) == (1024, "in-network")
    assert long["time_s"] == min(long["algorithms_s"].values()) > (1 << 30) / 450e9
    assert long["bus_bandwidth_bytes_per_s"] == pytest.approx(1.75 * (1 << 30) / long["time_s"])
    fitted = json.loads(run("cost", "hgx-h100", "--sizes", "1GiB", "--constants", "hopper", "--json").stdout)
    assert fitted["rows"][0]["time_s"] > long["time_s"]
    assert "algorithm" in run("cost", "default", "--arch", "a100").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("default",), "give one, --arch a100"),
        (("hgx-h100", "--collective", "all_reduse"), "did you mean all_reduce"),
        (("hgx-h100", "--constants", "hoper"), "did you mean hopper"),
        (("hgx-h100", "--sizes", "1KiB,many"), "--sizes 'many'"),
    ],
)
def test_what_a_curve_needs(arguments, message):
    with pytest.raises(InputError) as caught:
        app(["network", "cost", *arguments], standalone_mode=False)
    assert message in str(caught.value)


def test_a_fit_finds_a_known_network_again(measurements, tmp_path):
    samples = read_samples(measurements)
    found = fit_network("mine", samples)
    assert (found.rows, found.aside) == (48, 12)
    assert found.after_pct < 10 < found.before_pct / 5
    again = fit_network("mine", samples)
    assert again == found
    path = tmp_path / "fitted.yaml"
    path.write_text(network_yaml("mine", found.network.tiers, found.network.algorithms))
    loaded = load_network(path)
    for size in (1e5, 1e8):
        expected = fastest_s(Collective.ALL_REDUCE, size, found.network, 0.0, 16)
        assert fastest_s(Collective.ALL_REDUCE, size, loaded, 0.0, 16) == pytest.approx(expected, rel=1e-4)


def test_fitting_on_the_command_line(measurements, tmp_path):
    out = tmp_path / "net.yaml"
    result = run("fit", measurements, "--out", out, "--bandwidth", "400GB/s", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["after_pct"] < 10
    assert load_network(out).scale_up_bandwidth_bytes_per_s == 400e9
    assert run("cost", out, "--devices", 16).exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("collective,ranks,bytes\n", "no column 'time_us'"),
        ("collective,ranks,bytes,time_us\nall_reduce,2,8,1\n", "1 rows of two or more ranks; 5 are needed"),
        (
            "collective,ranks,bytes,time_us\nreduce,2,8,1\n",
            "line 2: collective is 'reduce', not one of alltoall",
        ),
        (
            "collective,ranks,bytes,time_us\nall_reduce,2,0,1\n",
            "line 2: bytes is '0', not a whole number from 1",
        ),
        ("system,collective,ranks,bytes,time_us\na,all_reduce,2,8,1\nb,all_reduce,2,8,1\n", "'a', 'b'"),
    ],
)
def test_files_that_cannot_be_fitted(text, message, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_samples(path)


RACKS = """
schema_version: 2
name: racks
tiers:
  - {topology: switch, devices: 24, medium: adapter, bandwidth: 12.5GB/s, latency: 10us,
     epsilon: 0.02, fan_in: 8, memory: 0.1, source: made up}
  - {topology: fat-tree, devices: null, medium: adapter, bandwidth: 12.5GB/s, latency: 15us, oversubscription: 4,
     epsilon: 0.02, fan_in: 8, memory: 0.1, source: made up}
"""


def test_collectives_in_stages(dse, tmp_path):
    path = tmp_path / "racks.yaml"
    path.write_text(RACKS)
    code, out, _ = dse(
        "networks", "choose", str(path), "--devices", "96", "--sizes", "1KiB,512KiB,2GiB", "--json"
    )
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [row["stages"] for row in rows] == ["96 over 2 tiers", "8 x 3 | 4", "96 over 2 tiers by tree"]
    for row in rows:
        assert row["gain"] == pytest.approx(row["time_s"] / row["synthesized_s"])
        assert row["gain"] >= 1
    assert "8 x 3 | 4" in dse("networks", "choose", str(path), "--devices", "96")[1]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--devices", "63"), "whole number"),
        (("--collective", "all_to_all"), "all_gather"),
        (("--collective", "all_reduced"), "--collective"),
        (("--devices", "1"), "--devices"),
    ],
)
def test_collectives_without_stages(dse, more, told):
    code, out, err = dse("networks", "choose", "default", "--arch", "h100", *more)
    assert (code, out) == (2, "")
    assert told in err


def test_a_plan_with_synthesized_collectives(dse, tmp_path):
    """The same plan is never slower where a network has them, too."""
    seconds = []
    for more in (
        "",
        "algorithms: [ring, tree, hierarchical, synthesized]\n",
        "algorithms: [ring, tree, hierarchical]\n",
    ):
        path = tmp_path / "racks.yaml"
        path.write_text(RACKS.replace("tiers:\n", f"{more}tiers:\n").replace("devices: 24", "devices: 8"))
        line = ("plan", "--arch", "h100", "--workload", "gpt3-xl", "--devices", "8", "--network", str(path))
        degrees = (
            "--tensor-parallel",
            "8",
            "--microbatch",
            "1",
            "--global-batch",
            "8",
            "--zero",
            "0",
            "--json",
        )
        seconds.append(json.loads(dse(*line, *degrees)[1])["best"]["iteration_time_s"])
    assert seconds[1] < seconds[0] <= seconds[2]
