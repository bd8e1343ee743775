"""The browser that tests of the pages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running
