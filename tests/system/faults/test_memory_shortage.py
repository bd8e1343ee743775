"""Without memory, clients get an error without internals, and later are served again."""

from __future__ import annotations

import itertools
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.scraping import sum_series
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.large_tensors]

MODEL = "identity_fp32"
MIB = 1 << 20
#: What is larger than all before needs a segment of its own, which has to be made.
SIZES = itertools.count(6 * MIB, MIB)
#: What travels inside of messages.
SMALL = 4096
#: Paths, names of segments, addresses and traces.
INSIDES = re.compile(r"/|memfd|0x|zmqtriton|Traceback|line \d", re.IGNORECASE)


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/dev/shm"]
    return not subprocess.run(command, capture_output=True, check=False).returncode


def in_full_shared_memory(directory: Path) -> Path:
    """A Python that has a /dev/shm of its own without room for anything."""
    python = directory / "python"
    fill = "mount -t tmpfs -o size=64k none /dev/shm; cat /dev/zero > /dev/shm/full 2>/dev/null; "
    run = f'{fill} exec {shlex.quote(sys.executable)} "$@"'
    python.write_text(f'#!/bin/sh\nexec unshare -rm sh -c {shlex.quote(run)} sh "$@"\n')
    python.chmod(0o700)
    return python


CAN_MOUNT = can_mount()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("shortage")
    python = in_full_shared_memory(directory) if CAN_MOUNT else sys.executable
    with Server(directory / "s", models=[MODEL], python=python) as server:
        yield server
        # Nothing of what was not to be had is kept, or counts.
        eventually(lambda: not shared_bytes(server), 30, "all shared memory is given back")


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """After each shortage all processes are the same, and serve whatever could not be served."""
    pids = running.pids()
    yield running
    size = next(SIZES)
    assert ["", ""] == [ask(running, protocol, size) for protocol in ("http", "grpc")]
    assert pids == running.pids()
    assert "Traceback" not in running.log_text()


def shared_bytes(server: Server) -> float:
    return sum_series(server, "zmqtriton_shared_memory_bytes")


def ask(server: Server, protocol: str, size: int) -> str:
    """Why it was refused; "" for the right answer."""
    array = np.full(size // 4, size, np.float32)
    with open_client(server, protocol) as client:
        inputs = infer_inputs(module_of(client), INPUT0=array)
        try:
            answer = client.infer(MODEL, inputs).as_numpy("OUTPUT0")
        except InferenceServerException as error:
            is_right = error.status() in ("503", "StatusCode.UNAVAILABLE")
            return str(error.message()) if is_right else f"{error.status()}: /"
    assert np.array_equal(array, answer)
    return ""


@contextmanager
def limited(pid: int, kind: int, limit: int) -> Iterator[None]:
    process = psutil.Process(pid)
    soft, hard = process.rlimit(kind)
    process.rlimit(kind, (limit, hard))
    try:
        yield
    finally:
        process.rlimit(kind, (soft, hard))


def refusal(server: Server, protocol: str) -> str:
    """Return what a client is told, who asks for more until it is too much."""
    for size in itertools.islice(SIZES, 12):
        reason = ask(server, protocol, size)
        if reason:
            assert not INSIDES.search(reason), reason
            return reason
    raise AssertionError("there was memory")


def test_a_process_without_descriptors_refuses_what_needs_one(server: Server) -> None:
    # Who has segments makes room by giving them back.
    eventually(lambda: not shared_bytes(server), 30, "what others have used is given back")
    pid = server.pids()["supervisor"][0]
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    first_free = next(number for number in itertools.count() if number not in taken)
    with limited(pid, resource.RLIMIT_NOFILE, first_free):
        assert refusal(server, "http").endswith("Too many open files")
        assert 200 == server.status("/v2/health/ready")


@pytest.mark.parametrize(
    "protocol",
    [
        "http",
        pytest.param(
            "grpc",
            marks=pytest.mark.long(
                "system/faults/test_memory_shortage.py::test_where_no_segment_can_be_made_the_request_is_refused"
            ),
        ),
    ],
)
def test_where_no_segment_can_be_made_the_request_is_refused(server: Server, protocol: str) -> None:
    # The kernel takes a segment for a file.
    with limited(server.pids()["supervisor"][0], resource.RLIMIT_FSIZE, 4 * MIB):
        assert re.fullmatch(
            r"Failed to increase the shared memory pool size to \d+ bytes\. "
            r"File too large \(see ulimit -f\)",
            refusal(server, protocol),
        )
        assert "" == ask(server, protocol, SMALL)


@pytest.mark.parametrize(
    ("role", "protocol"),
    [
        ("http", "http"),
        pytest.param(
            "grpc",
            "grpc",
            marks=pytest.mark.long(
                "system/faults/test_memory_shortage.py::test_a_process_without_room_refuses_what_is_too_large"
            ),
        ),
        pytest.param(
            "stub",
            "http",
            marks=pytest.mark.long(
                "system/faults/test_memory_shortage.py::test_a_process_without_room_refuses_what_is_too_large"
            ),
        ),
        ("stub", "grpc"),
    ],
)
def test_a_process_without_room_refuses_what_is_too_large(
    server: Server, role: str, protocol: str
) -> None:
    # Of those for HTTP the last one serves.
    pid = server.pids()[role][-1]
    with limited(pid, resource.RLIMIT_AS, psutil.Process(pid).memory_info().vms + MIB):
        assert "memory" in refusal(server, protocol)
        assert "" == ask(server, protocol, SMALL)


@pytest.mark.skipif(not CAN_MOUNT, reason="nobody may mount a file system of his own here")
def test_a_full_dev_shm_is_nothing_to_the_server(server: Server) -> None:
    [broker] = server.pids()["broker"]
    assert 0 == os.statvfs(os.path.join("/proc", str(broker), "root", "dev", "shm")).f_bavail

    assert ["", ""] == [ask(server, protocol, 5 * MIB) for protocol in ("http", "grpc")]


@pytest.mark.skipif(not CAN_MOUNT, reason="nobody may mount a file system of his own here")
@pytest.mark.long(
    "frontends/inference/test_client_regions.py::test_memory_that_its_client_cut_short_is_an_error",
    "system/faults/test_memory_shortage.py::test_a_full_dev_shm_is_nothing_to_the_server",
)
def test_a_client_s_region_without_memory_is_an_error_of_its_request(server: Server) -> None:
    [broker] = server.pids()["broker"]
    path = Path("/proc", str(broker), "root/dev/shm/sparse")
    path.touch(0o600)
    os.truncate(path, MIB)
    region = "/v2/systemsharedmemory/region/sparse"
    document = {"key": "/sparse", "offset": 0, "byte_size": MIB}
    assert 200 == server.request_json(f"{region}/register", document)[0]
    [entry] = infer_inputs(http_client, INPUT0=np.ones(MIB // 4, np.float32))
    output = http_client.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("sparse", MIB)

    with (
        open_client(server, "http") as client,
        pytest.raises(InferenceServerException) as refused,
    ):
        client.infer(MODEL, [entry], outputs=[output])

    assert (
        "cannot write to shared memory region 'sparse': No space left on device"
        == refused.value.message()
    )
    assert 200 == server.request_json(f"{region}/unregister", {})[0]
    path.unlink()
