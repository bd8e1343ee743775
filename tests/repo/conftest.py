"""The syntax trees that tests of the sources share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repo import sources

_HERE = Path(__file__).parent


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Free the syntax trees after the last test here."""
    if nextitem is None or _HERE not in nextitem.path.parents:
        sources.forget()
