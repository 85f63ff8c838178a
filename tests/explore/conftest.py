from __future__ import annotations

import pytest
from postgres_server import PostgresServer, programs
from small_cases import Remembering, small_decoder

from phaze.explore.request.search_resources import SearchResources
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space

SMALL = """
schema_version: 1
name: small
axes:
  - {fields: [tensor_cores], values: [1, 4, 6]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [tensor_core_columns], values: [128]}
  - {fields: [vector_cores], values: [1, 3]}
  - {fields: [vector_core_alus], values: [64, 1024]}
  - {fields: [global_buffer_bytes], values: [16MiB, 64MiB]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""


@pytest.fixture(scope="module", autouse=True)
def only_the_proof(request):
    """No runners-up and no chips beside the winner, most of the time of a small search.

    Unless the module has tests about them and says `WHOLE_ANSWERS = True`.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "WHOLE_ANSWERS", False):
            patch.setattr("phaze.explore.answers.exploration.NEXT_BEST", 0)
            for name in (
                "answers.exploration.chips_beside",
                "answers.exploration.plan_beside",
                "answers.least_memory_exploration.comparisons",
                "recheck.document_recheck.comparisons",
            ):
                patch.setattr(f"phaze.explore.{name}", lambda *_: [])
        yield


@pytest.fixture(scope="module")
def resources():
    """Memory for all searches of a module, which ask for the same layers on the same chips.

    What is recalled is what was worked out, to the last bit: `certified/test_recalled.py` says so.
    """
    return SearchResources(store=Remembering())


@pytest.fixture(scope="session")
def small_space(tmp_path_factory):
    """96 architectures of very different balance."""
    path = tmp_path_factory.mktemp("spaces") / "small.yaml"
    path.write_text(SMALL)
    return load_space(path)


@pytest.fixture(scope="session")
def network():
    return load_network()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return small_decoder(tmp_path_factory.mktemp("workloads"))


@pytest.fixture(scope="session")
def postgres():
    """A running PostgreSQL server."""
    pytest.importorskip("psycopg")
    if programs() is None:
        pytest.skip("no PostgreSQL server is installed")
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """The URL of an empty database, one of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sweeps.db'}"
    return request.getfixturevalue("postgres").database()


@pytest.fixture
def make_sweep(tiny, tmp_path):
    """Makes the plan of a sweep, whose study is in a folder of its own unless a place is given."""
    from sweeps import sweep_plan

    def make(trials, folder="a", **changes):
        (tmp_path / folder).mkdir(exist_ok=True)
        return sweep_plan(tiny, trials, tmp_path / folder / "study.journal", **changes)

    return make
