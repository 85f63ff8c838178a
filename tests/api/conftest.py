"""One small search for all tests of this folder."""

from __future__ import annotations

import pytest
from small_cases import DECODER

import phaze

SPACE = """
schema_version: 1
name: four
axes:
  - {fields: [tensor_cores], values: [4, 8]}
  - {fields: [vector_cores], values: [1, 2]}
"""


@pytest.fixture(scope="session")
def asked(tmp_path_factory):
    """A decoder and a space of four architectures, as arguments."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "tiny.yaml").write_text(DECODER)
    (folder / "four.yaml").write_text(SPACE)
    return {"workload": folder / "tiny.yaml", "space": folder / "four.yaml", "devices": 4}


@pytest.fixture(scope="session")
def found(asked, tmp_path_factory):
    return phaze.explore(**asked, power=600.0, out=tmp_path_factory.mktemp("run"))
