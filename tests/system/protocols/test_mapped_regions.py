"""Clients' shared memory that stubs map, and what clients can do to it meanwhile.

Each line of the table in docs/security.md has a test here. Whatever happens, no frontend and no
broker dies.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.raw_http import raw_request
from tests.support.server import Server, Written
from tests.support.waiting import eventually

COUNT = 1 << 18
SIZE = 4 * COUNT
PATH = Path(f"/dev/shm/zmqtriton_mapped_{os.getpid()}")


_TOTAL_CONFIG = """
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
sequence_batching { max_sequence_idle_microseconds: 600000000 }
"""
#: The sum of all inputs of a sequence. With the parameter `path` it reads when the test says so.
_TOTAL = """
import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    total = 0.0

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        path = json.loads(request.parameters()).get("path")
        if path:
            open(path + ".begun", "w").close()
            while not os.path.exists(path + ".go"):
                time.sleep(0.002)
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        self.total += float(tensor.as_numpy().sum(dtype=np.float64))
        output = pb_utils.Tensor("OUTPUT0", np.array([self.total], np.float32))
        return pb_utils.InferenceResponse([output])
"""
pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=["held", "identity_fp32", Written("total", _TOTAL_CONFIG, _TOTAL)],
    ),
]


_URL = "/v2/systemsharedmemory"
_numbers = itertools.count(1)


class Region:
    """Room for two tensors in a file, registered as `r`: of the input, and of the output."""

    def __init__(self, server: Server, mode: int = 0o600) -> None:
        self.server = server
        PATH.write_bytes(bytes(2 * SIZE))
        PATH.chmod(mode)
        self.register()

    def register(self) -> None:
        body = {"key": f"/{PATH.name}", "offset": 0, "byte_size": 2 * SIZE}
        assert (200, None) == self.server.request_json(f"{_URL}/region/r/register", body)

    def unregister(self) -> None:
        assert (200, None) == self.server.request_json(f"{_URL}/unregister", {})

    def write(self, value: float) -> None:
        with PATH.open("r+b") as file:
            file.write(np.full(COUNT, value, np.float32).tobytes())

    def output(self) -> set[Any]:
        return set(np.fromfile(PATH, np.float32)[COUNT:])

    def ask(self, value: float, model: str = "held", **more: Any) -> tuple[int, Any]:
        """Have a model read the first half, with this value, and write the second one."""
        self.write(value)
        return self.server.request_json(f"/v2/models/{model}/infer", request(**more))

    def is_right(self, value: float) -> bool:
        status, _ = self.ask(value)
        return status == 200 and self.output() == {value + 1}


def request(offset: int = 0, path: Path | None = None) -> dict[str, Any]:
    place: dict[str, Any] = {"shared_memory_region": "r", "shared_memory_byte_size": SIZE}
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [COUNT]}
    return {
        "inputs": [{**tensor, "parameters": {**place, "shared_memory_offset": offset}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {**place, "shared_memory_offset": SIZE}}],
        "parameters": {} if path is None else {"path": str(path)},
    }


@contextmanager
def registered(server: Server, mode: int = 0o600) -> Iterator[Region]:
    region = Region(server, mode)
    try:
        yield region
    finally:
        region.unregister()
        PATH.unlink(missing_ok=True)
        eventually(lambda: not who_maps(server), 60, "nobody has it any more")


@pytest.fixture
def region(server: Server) -> Iterator[Region]:
    with registered(server) as region:
        yield region


class Held:
    """A request that its model has begun, and does not go on with before the end of `with`."""

    def __init__(self, region: Region, value: float = 1.0) -> None:
        self.path = region.server.scratch / f"held{next(_numbers)}"
        region.write(value)
        self._server = region.server
        self.answers: list[tuple[int, Any]] = []
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        document = request(path=self.path)
        self.answers.append(self._server.request_json("/v2/models/held/infer", document))

    def __enter__(self) -> Held:
        self._thread.start()
        eventually(Path(f"{self.path}.begun").exists, 30, "the model has begun")
        return self

    def release(self) -> None:
        Path(f"{self.path}.go").touch()

    def __exit__(self, *error: object) -> None:
        self.release()
        self._thread.join()


def who_maps(server: Server, rights: str = "") -> set[str]:
    """The roles of processes that have the region mapped, or mapped with these rights."""
    roles = set()
    for role, pids in server.pids().items():
        for pid in pids:
            for line in _maps(pid).splitlines():
                if PATH.name in line and rights in line.split()[1]:
                    roles.add(role)
    return roles


def _maps(pid: int) -> str:
    with suppress(OSError):  # it may be dead by now
        return Path(f"/proc/{pid}/maps").read_text()
    return ""


def others(server: Server) -> dict[str, list[int]]:
    """The processes that must not die, whatever clients do.

    A stub that starts just now looks like the fork server for a moment.
    """
    return {role: pids for role, pids in server.pids().items() if role != "stub"}


# ------------------------------------------------------------------------- use


@pytest.mark.row("C93")
def test_a_stub_reads_and_writes_a_clients_memory_without_a_copy(region: Region) -> None:
    for value in (1.5, 2.5, 3.5):
        assert region.is_right(value)

    assert ({"stub"}, {"stub"}) == (who_maps(region.server), who_maps(region.server, "rw-s"))
    # what the model has written into its input is seen by nobody
    assert {3.5} == set(np.fromfile(PATH, np.float32)[:COUNT])


def test_an_output_over_its_input_is_right(region: Region) -> None:
    region.write(1.5)
    document = request()
    document["outputs"][0]["parameters"]["shared_memory_offset"] = SIZE // 2

    assert 200 == region.server.request_json("/v2/models/identity_fp32/infer", document)[0]

    assert {1.5} == set(np.fromfile(PATH, np.float32)[COUNT // 2 : COUNT // 2 + COUNT])


@pytest.mark.parametrize("whose", ["writable by others", "of another user"])
def test_memory_that_others_can_truncate_is_copied(server: Server, whose: str) -> None:
    if whose == "of another user" and os.geteuid():
        pytest.skip("only root gives files to others")
    with registered(server, 0o666 if whose == "writable by others" else 0o600) as region:
        if whose == "of another user":
            region.unregister()
            os.chown(PATH, 4711, 4711)
            region.register()
        before = server.pids()
        assert region.is_right(1.5)
        assert set() == who_maps(server)

        with Held(region) as held:
            os.truncate(PATH, 0)

        [(status, answer)] = held.answers
        assert (400, "smaller than when it was registered") == (status, answer["error"][-35:])
        assert before == server.pids()


# ---------------------------------------------------------- what clients do meanwhile


def test_memory_that_is_cut_short_between_requests_kills_nobody(region: Region) -> None:
    assert region.is_right(1.5)
    before = region.server.pids()

    os.truncate(PATH, SIZE)
    status, answer = region.ask(1.5)
    assert (400, "smaller than when it was registered") == (status, answer["error"][-35:])
    os.truncate(PATH, 0)
    assert 400 == region.server.request_json("/v2/models/held/infer", request())[0]

    assert before == region.server.pids()
    os.truncate(PATH, 2 * SIZE)
    assert region.is_right(2.5)


def test_memory_that_is_cut_short_under_a_model_ends_its_stub_once(region: Region) -> None:
    server = region.server
    before = others(server)

    with Held(region) as held:
        os.truncate(PATH, 0)

    [(status, answer)] = held.answers
    assert status in (500, 503)
    text = "killed by SIGBUS, because its client has truncated shared memory: 'r'"
    assert text in answer["error"]
    eventually(lambda: text in server.log_text(), 30, "the log says so")
    os.truncate(PATH, 2 * SIZE)
    eventually(lambda: region.ask(1.5)[0] == 200, 30, "another stub")
    assert {2.5} == region.output()
    assert set() == who_maps(server)
    with Held(region) as held:
        os.truncate(PATH, 0)
    eventually(lambda: before == others(server), 60, f"{before} go on")
    assert [400] == [status for status, _ in held.answers]
    os.truncate(PATH, 2 * SIZE)


def test_a_file_that_is_removed_or_replaced_is_used_as_it_was(region: Region) -> None:
    aside = PATH.with_name(f"{PATH.name}_aside")
    with Held(region, 1.5) as held:
        PATH.rename(aside)
        PATH.write_bytes(bytes(16))
    try:
        assert [200] == [status for status, _ in held.answers]
        assert {2.5} == set(np.fromfile(aside, np.float32)[COUNT:])
        assert bytes(16) == PATH.read_bytes()
    finally:
        aside.unlink()
    with Held(region) as held:
        PATH.unlink()
    assert [200] == [status for status, _ in held.answers]


def _grow() -> None:
    os.truncate(PATH, 3 * SIZE)


def _punch_hole() -> None:
    with PATH.open("r+b") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        keep_size, punch_hole = 1, 2
        flags = keep_size | punch_hole
        assert 0 == libc.fallocate(file.fileno(), flags, ctypes.c_long(0), ctypes.c_long(2 * SIZE))


@pytest.mark.parametrize(("change", "answer"), [(_grow, 2.5), (_punch_hole, 1.0)])
def test_memory_that_grows_stays_the_same_and_a_hole_in_it_is_zeros(
    region: Region, change: Callable[[], None], answer: float
) -> None:
    assert region.is_right(1.5)
    with Held(region, 1.5) as held:
        change()

    assert [200] == [status for status, _ in held.answers]
    assert {answer} == set(np.fromfile(PATH, np.float32)[COUNT : 2 * COUNT])


def test_an_unregistration_waits_for_what_a_stub_reads_and_writes(region: Region) -> None:
    with Held(region, 1.5) as held:
        leaving = threading.Thread(target=region.unregister)
        leaving.start()
        leaving.join(0.3)
        assert leaving.is_alive()
    leaving.join()

    assert ([200], {2.5}) == ([status for status, _ in held.answers], region.output())
    eventually(lambda: not who_maps(region.server), 60)
    region.register()


@pytest.mark.parametrize("how", ["leaves", "is late"])
def test_the_region_of_a_client_that_has_left_is_in_use_until_its_model_ends(
    region: Region, how: str
) -> None:
    path = region.server.scratch / how.partition(" ")[0]
    headers = {"Connection": "close"} | ({"X_Request_Timeout": "0.2"} if how == "is late" else {})
    body = json.dumps(request(path=path)).encode()
    with socket.create_connection(("127.0.0.1", region.server.http_port)) as client:
        client.sendall(raw_request("POST", "/v2/models/held/infer", body, **headers))
        if how == "is late":
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 504")
        else:
            eventually(Path(f"{path}.begun").exists, 30)

    leaving = threading.Thread(target=region.unregister)
    leaving.start()
    leaving.join(0.3)
    assert leaving.is_alive()
    Path(f"{path}.go").touch()
    leaving.join()
    if how == "is late":  # nothing is written after that answer
        assert {0.0} == region.output()
    region.register()


def test_a_sequence_goes_on_with_what_a_request_had_when_its_deadline_passed(
    region: Region,
) -> None:
    for number, within_s in enumerate((0.5, 2, 8, 32), 1):  # until the model has begun in time
        path = region.server.scratch / f"sequence{number}"
        sequence = {"sequence_id": number, "sequence_start": True, "path": str(path)}
        document = {"inputs": request()["inputs"], "parameters": sequence}
        region.write(1.0)
        headers = {"X_Request_Timeout": str(within_s), "Connection": "close"}
        body = json.dumps(document).encode()
        with socket.create_connection(("127.0.0.1", region.server.http_port)) as client:
            client.sendall(raw_request("POST", "/v2/models/total/infer", body, **headers))
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 504")
        if Path(f"{path}.begun").exists():
            break

    region.write(5.0)  # for the next request
    Path(f"{path}.go").touch()
    document["parameters"] = {"sequence_id": number, "sequence_end": True}
    status, answer = region.server.request_json("/v2/models/total/infer", document)

    assert (200, [6.0 * COUNT]) == (status, answer["outputs"][0]["data"])
