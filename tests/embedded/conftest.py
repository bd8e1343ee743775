"""The fixtures of tests with real processes."""

from __future__ import annotations

import pytest
import zmq

from tests.system.conftest import pool, running, server, shared, shared_server, tmp_path

__all__ = ["pool", "running", "server", "shared", "shared_server", "tmp_path"]


@pytest.fixture(scope="module")
def zmq_threads() -> None:
    """Start libzmq's threads, which stay for the life of the process."""
    zmq.Context.instance().socket(zmq.SUB).close()
