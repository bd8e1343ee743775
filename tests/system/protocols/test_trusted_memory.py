"""Clients' shared memory where the operator trusts clients: stubs map it, and nobody copies it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.raw_http import raw_request, send_raw
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

PATH = Path(f"/dev/shm/zmqtriton_trusted_{os.getpid()}")
COUNT = 1 << 18
SIZE = 4 * COUNT


FRONTENDS = ()
MODELS = ["identity_fp32"]
OPTIONS = ("--trust-client-shm",)


@pytest.fixture
def region(server: Server) -> Iterator[Path]:
    """Room for two tensors, registered as `r`."""
    PATH.write_bytes(bytes(2 * SIZE))
    try:
        body = f'{{"key":"/{PATH.name}","offset":0,"byte_size":{2 * SIZE}}}'
        assert [200] == ask(server, "/v2/systemsharedmemory/region/r/register", body)
        yield PATH
    finally:
        assert [200] == ask(server, "/v2/systemsharedmemory/unregister", "")
        PATH.unlink()
        eventually(lambda: not who_maps(server), 20, "nobody has it any more")


def ask(server: Server, path: str, body: str) -> list[int]:
    data = raw_request("POST", path, body.encode(), Connection="close")
    return send_raw(server.http_port, data).statuses


def copy(server: Server, offset: int = 0) -> list[int]:
    """Has the model give back the first tensor as the second one."""
    place = f'"shared_memory_region":"r","shared_memory_byte_size":{SIZE}'
    tensor = f'"name":"INPUT0","datatype":"FP32","shape":[{COUNT}]'
    body = (
        f'{{"inputs":[{{{tensor},"parameters":{{{place},"shared_memory_offset":{offset}}}}}],'
        f'"outputs":[{{"name":"OUTPUT0","parameters":{{{place},"shared_memory_offset":{SIZE}}}}}]}}'
    )
    return ask(server, "/v2/models/identity_fp32/infer", body)


def write(value: float) -> None:
    with PATH.open("r+b") as file:
        file.write(np.full(COUNT, value, np.float32).tobytes())


def second() -> set[Any]:
    return set(np.fromfile(PATH, np.float32)[COUNT:])


def who_maps(server: Server) -> set[str]:
    """The roles of processes that have the region mapped."""
    roles = server.pids().items()
    return {role for role, pids in roles for pid in pids if PATH.name in _maps(pid)}


def _maps(pid: int) -> str:
    with suppress(OSError):  # it may be dead by now
        return Path(f"/proc/{pid}/maps").read_text()
    return ""


@pytest.mark.row("C93")
def test_a_stub_reads_what_its_client_has_written_without_a_copy(
    server: Server, region: Path
) -> None:
    for value in (1.5, 2.5, 3.5):
        write(value)
        assert [200] == copy(server)
        assert {value} == second()

    assert {"stub"} == who_maps(server)


def test_a_tensor_at_an_odd_place_is_copied(server: Server, region: Path) -> None:
    assert [200] == copy(server, offset=4)

    assert set() == who_maps(server)


def test_what_is_unregistered_is_not_mapped_any_more(server: Server, region: Path) -> None:
    assert [200] == copy(server)
    assert {"stub"} == who_maps(server)

    assert [200] == ask(server, "/v2/systemsharedmemory/unregister", "")

    eventually(lambda: not who_maps(server), 20)


def test_requests_beside_each_other_read_the_same(server: Server, region: Path) -> None:
    write(4.5)
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda: statuses.extend(copy(server))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [200] * 8 == statuses
    assert {4.5} == second()


def test_memory_that_is_cut_short_ends_its_reader_alone(server: Server, region: Path) -> None:
    assert [200] == copy(server)
    before = server.pids()

    os.truncate(region, 0)
    [status] = copy(server)

    assert status in (400, 500, 503)
    eventually(lambda: server.status("/v2/health/ready") == 200, 30)
    # a stub that starts just now is nobody's yet
    eventually(lambda: {**before, "stub": []} == {**server.pids(), "stub": []}, 30)
    os.truncate(region, 2 * SIZE)
    write(5.5)
    assert [200] == copy(server)
    assert {5.5} == second()
