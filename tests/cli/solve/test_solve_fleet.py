"""`dse solve fleet`, as it is typed; the instance is the one of its page."""

from __future__ import annotations

import json

import pytest
from page_instances import page_instance


@pytest.fixture
def instance(tmp_path):
    return tmp_path / "rent.json", page_instance("fleet.md")


def test_the_fleet_of_the_page(solve, instance):
    file, data = instance
    file.write_text(json.dumps(data))
    done = solve("fleet", str(file), "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["status"], found["price_usd_per_hour"]) == (0, "optimal", 8)
    assert found["time_s"] == pytest.approx(28.4314, abs=5e-5)
    assert [row["config"] for row in found["fleet"]] == ["t1", "t2 x 2"]
    cheap = json.loads(solve("fleet", str(file), "--within", "60s", "--json").stdout)
    assert (cheap["price_usd_per_hour"], cheap["time_s"] <= 60) == (4, True)
    assert "28.43" in solve("fleet", str(file)).stdout


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        (
            {"budget_usd_per_hour": 1},
            3,
            "a budget of 1 USD per hour does not serve all requests; 2 USD would",
        ),
        ({"budget_usd_per_hour": 0}, 2, "budget_usd_per_hour"),
        ({"available": {"t1": 1}}, 2, "t2 takes t2, and available does not say"),
        ({"available": {"t1": 0, "t2": 0, "t3": 0}}, 3, "whatever the budget"),
        ({"requests": {"long": 80, "short": 20, "other": 1}}, 3, "no configuration serves other"),
        ({"requests": {"long": 80}}, 2, "has a rate for short"),
        ({"requests": {"long": True, "short": 20}}, 2, "requests.long: must be a number, found True"),
        ({"available": {"t1": "2", "t2": 2, "t3": 2}}, 2, "available.t1: must be a whole number, found '2'"),
    ],
)
def test_what_makes_no_sense(solve, instance, change, code, told):
    file, data = instance
    file.write_text(json.dumps(data | change))
    done = solve("fleet", str(file), "--json")
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr.partition("\n")[0]


def test_arrival_rates_that_nothing_meets(solve, instance):
    file, data = instance
    file.write_text(json.dumps(data))
    done = solve("fleet", str(file), "--within", "1s")
    assert (done.returncode, "within 1 s, whatever the budget" in done.stderr) == (3, True)
