"""A connection that has been introduced, and a request on it."""

from __future__ import annotations

import pytest

from tests.frontends.http2.talk import END, Heard, Talk


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
def stream(talk: Talk) -> Heard:
    """A request whose headers have come."""
    return talk.open(1)


@pytest.fixture
def call(talk: Talk) -> Heard:
    """A request that has ended."""
    return talk.open(1, flags=END)
