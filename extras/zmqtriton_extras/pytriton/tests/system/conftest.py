"""A Triton that serves for all tests of a module."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import zmq

from tests.support.waiting import eventually
from zmqtriton.embedded.connection import Connection
from zmqtriton_extras.pytriton.tests.system.served import Served, configured
from zmqtriton_extras.pytriton.triton import Triton


@pytest.fixture(scope="module", autouse=True)
def zmq_threads() -> None:
    """Start libzmq's threads, which stay, unless the tests of another file have ended them."""
    zmq.Context.instance().socket(zmq.SUB).close()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = configured(tmp_path_factory.mktemp("triton"))
    assert config.http_port is not None
    with Triton(config=config) as triton:
        yield Served(triton, config.http_port)


@pytest.fixture
def served(serving: Served) -> Iterator[Served]:
    """The same server for all tests; what one of them binds goes with it."""
    yield serving
    triton = serving.triton
    assert isinstance(triton._connection, Connection)
    hosting = triton._connection._guest.hosting
    for name, _ in list(triton._bindings):
        triton.unbind(name)
    eventually(lambda: not hosting.is_running, within_s=60)
    gc.collect()
