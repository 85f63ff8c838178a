"""What a small decoder is trained on in fleets."""

from __future__ import annotations

import pytest
from small_cases import small_decoder
from small_fleets import NETWORK

from phaze.explore.request.explore_request import Task


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    workload = small_decoder(tmp_path_factory.mktemp("decoder"))
    return Task(workload, 4, NETWORK, 8, held={"microbatches": (1, 2)})
