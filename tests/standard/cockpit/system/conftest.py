"""The browser that tests of the pages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.standard.cockpit.system.front_page import state
from tests.support.browser import Browser
from tests.support.server import Server


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def browser(chromium: Browser, server: Server) -> Iterator[Browser]:
    """At the front page of the file's server, which complains of nothing."""
    chromium.complaints.clear()
    chromium.set_viewport(1280, 900)
    chromium.open("about:blank")
    chromium.open(f"{server.url}/")
    chromium.wait_for(f"{state('add_sub')} === 'READY'")

    yield chromium

    chromium.open("about:blank")
    assert [] == chromium.complaints
