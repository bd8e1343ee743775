"""The fixture of the tests of backends: no model is left as this process's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zmqtriton_stub import instance as this_process


@pytest.fixture(autouse=True)
def no_instance_stays() -> Iterator[None]:
    yield
    this_process.current = None
