"""The syntax trees that tests of the sources share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.repo import sources


@pytest.fixture(scope="module", autouse=True)
def no_trees_left() -> Iterator[None]:
    """Free the syntax trees after each file of tests."""
    yield
    sources.forget()
