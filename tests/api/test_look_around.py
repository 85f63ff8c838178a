"""What has a name is listed alike in Python and by the command, and the solvers answer alike."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import phaze.workloads
import pytest
from page_instances import page_instance

import phaze
import phaze.api.catalogue_verbs
from phaze.errors import InfeasibleError, InputError

DATA = Path(__file__).parents[1] / "data"
SCHEDULE = DATA / "scheduling" / "small-00-n6-tc1-vc1.json"
PLACEMENTS = sorted((DATA / "placement").glob("*.json"))[:1]


@pytest.mark.parametrize("noun", ["archs", "workloads", "networks", "spaces", "frameworks", "plans"])
def test_a_noun_lists_what_its_function_returns(noun, dse):
    listed = getattr(phaze, noun)()
    assert json.loads(dse(noun, "--json")[1]) == listed.rows
    assert listed[0]["name"] in str(listed)
    assert list(listed.to_dataframe()["name"]) == [row["name"] for row in listed]


def test_the_folder_of_workloads_stays_a_package():
    assert "gpt3" in {row["name"] for row in phaze.workloads()}
    assert (Path(phaze.workloads.__file__).parent / "gpt3.yaml").is_file()


def test_the_solvers_answer_as_their_commands_do(dse):
    told = json.loads(dse("solve", "schedule", str(SCHEDULE), "--json")[1])
    found = phaze.solve_schedule(str(SCHEDULE))
    assert (found.status, found.makespan_s, found.optimal) == (
        told["status"],
        told["makespan_s"],
        told["optimal"],
    )
    for file in PLACEMENTS:
        told = json.loads(dse("solve", "placement", str(file), "--json")[1])
        placed = phaze.solve_placement(json.loads(file.read_text()))
        assert (placed.status, placed.time_per_batch_s) == (told["status"], told["time_per_batch_s"])


def test_fleets_and_layers_are_answered_as_by_their_commands(dse, tmp_path):
    rent, layers = page_instance("fleet.md"), page_instance("solve.md")
    file = tmp_path / "instance.json"
    file.write_text(json.dumps(rent))
    told = json.loads(dse("solve", "fleet", file, "--within", "60s", "--json")[1])
    found = phaze.solve_fleet(str(file), within="60s")
    assert (found.seconds, found.price_usd) == (told["time_s"], told["price_usd_per_hour"])
    assert phaze.solve_fleet(rent).price_usd == 8
    file.write_text(json.dumps(layers))
    told = json.loads(dse("solve", "layers", file, "--json")[1])
    chosen = phaze.solve_layers(layers)
    assert (chosen.status, chosen.time_s, chosen.memory_bytes) == (
        told["status"],
        told["time_s"],
        told["memory_bytes"],
    )
    assert phaze.solve_layers(layers, memory="60GB").time_s < chosen.time_s
    for asked in (
        lambda: phaze.solve_fleet(rent, within=1.0),
        lambda: phaze.solve_layers(layers, memory=1.0),
    ):
        with pytest.raises(InfeasibleError):
            asked()


def test_cores_of_a_host_are_shared_as_by_the_commands(dse, tmp_path):
    split, host = page_instance("solve.md", 1), page_instance("solve.md", 2)
    file = tmp_path / "instance.json"
    file.write_text(json.dumps(split))
    told = json.loads(dse("solve", "instances", file, "--json")[1])
    found = phaze.solve_instances(str(file))
    assert told["latency_s"] == found.latency_s == 0.7
    assert told["instances"] == [{"instances": 4, "cores": 4, "batch": 32, "latency_s": 0.7}]
    file.write_text(json.dumps(host))
    told = json.loads(dse("solve", "hosts", file, "--json")[1])
    assert told["gain"] == phaze.solve_hosts(host).gain == 2.75
    assert [job["cores"] for job in told["jobs"]] == [1, 23]
    with pytest.raises(InfeasibleError, match="their batches do not add up"):
        phaze.solve_instances(split | {"batch": 3})
    with pytest.raises(InfeasibleError) as error:
        phaze.solve_hosts(host | {"cores": 12})
    assert error.value.shortfalls[0].demand == 13
    with pytest.raises(InputError, match="two profiles have as many cores and samples"):
        phaze.solve_instances(split | {"profiles": split["profiles"] * 2})
    with pytest.raises(InputError, match="a needs either uses"):
        phaze.solve_hosts({"cores": 2, "jobs": [{"name": "a"}]})
    with pytest.raises(InputError, match="two jobs have one name"):
        phaze.solve_hosts(host | {"jobs": host["jobs"] * 2})


def test_errors_speak_of_arguments():
    with pytest.raises(InputError, match=r"method 'best' is not known"):
        phaze.solve_schedule(SCHEDULE, method="best")
    with pytest.raises(InputError, match=r"^instance: "):
        phaze.solve_schedule({"ops": []})


def test_the_examples_of_docstrings_run():
    told = doctest.testmod(phaze.api.catalogue_verbs)
    assert told.attempted > 3
    assert not told.failed
