"""The world that most tests of the broker begin with."""

from __future__ import annotations

import pytest

from tests.broker.world import BrokerHarness, S


@pytest.fixture
def world() -> BrokerHarness:
    return BrokerHarness.serving(S)
