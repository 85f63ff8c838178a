"""Contracts of what a package may bring, as classes of tests for pytest; a subclass gives the member as a fixture."""

import pytest

# So that what fails is told as in a test of one's own.
pytest.register_assert_rewrite(
    *(f"{__name__}.{kind}_contract" for kind in ("figure", "front_end", "strategy"))
)
