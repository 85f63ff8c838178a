from __future__ import annotations

import pytest
from player import Player


@pytest.fixture(scope="session")
def player(tmp_path_factory):
    """A process that plays cases."""
    found = Player(tmp_path_factory.mktemp("fuzz-player"))
    yield found
    found.stop()
