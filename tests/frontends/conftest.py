"""Fixtures of every frontend: the memory of a client, and a process without collections."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def client_memory() -> Iterator[int]:
    """The descriptor of a client's shared memory of a mebibyte."""
    descriptor = os.memfd_create("client")
    os.truncate(descriptor, 1 << 20)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Keep what refers to itself, as for long in a process that has much to do."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
