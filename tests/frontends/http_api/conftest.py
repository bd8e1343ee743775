"""The gateway behind an application."""

from __future__ import annotations

import pytest

from tests.frontends.http_api.fakes import FakeGateway


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()
