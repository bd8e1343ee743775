"""A careless parent leaves few descriptors: loads are refused, crowds make room, nobody ends."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
import tritonclient.grpc as triton

from tests.faults.requests import STREAM
from tests.support import raw_http2 as h2
from tests.support.needs import find_tool
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.attacks.connections import INFER, connect, is_served

pytestmark = pytest.mark.system

LIMIT = 300
#: More than may connect to a process, which keeps a hundred for itself.
CROWD = 240
LOADED = ["journal", "identity_fp32"]


#: So many descriptors, and half of them at first; none of what ends is kept.
LIMITS = ("sh", "-c", f'ulimit -c 0; ulimit -Sn {LIMIT // 2}; ulimit -Hn {LIMIT}; exec "$@"', "sh")
#: As a program starts others that leaves its children to the kernel, takes signals by a thread, and
#: lets nobody read its files.
_CARELESS = """
import os, signal, sys
os.umask(0o777)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in LOADED)]
    server = Server(tmp_path_factory.mktemp("limited") / "s", LOADED, options=options)
    server.add_model("journal", "many")
    # As in most containers, where root may not raise a limit either.
    limits = [*LIMITS]
    if not os.geteuid():
        setpriv = find_tool("setpriv", package="util-linux")
        limits = [setpriv, "--bounding-set=-sys_resource", *LIMITS]
    server.wrapper = [sys.executable, "-c", _CARELESS, *limits]
    with server:
        yield server
        assert 0 == server.stop()


def test_a_load_that_needs_more_descriptors_is_refused_with_the_numbers(server: Server) -> None:
    server.edit_config("many", "count: 1", "count: 100")
    before = server.pids()

    error = server.control_model("load", "many")

    assert "the limit of open files allows 30 instances; there are 2" in error
    assert "the load needs 100 more" in error
    assert before == server.pids()
    server.edit_config("many", "count: 100", "count: 10")
    assert ("", 10) == (server.control_model("load", "many"), len(server.stub_pids("many")))
    assert "" == server.control_model("unload", "many")


def is_live(server: Server) -> bool:
    with triton.InferenceServerClient(server.grpc_address) as client, suppress(Exception):
        return bool(client.is_server_live(client_timeout=2))
    return False


def test_a_crowd_that_stops_amid_its_requests_keeps_nobody_out(server: Server) -> None:
    half = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n12345678".encode()
    with ExitStack() as stack:
        for _ in range(CROWD):
            connect(server, stack, half)
            with suppress(OSError):  # the server refuses some
                crowd = h2.Connection(server.grpc_port)
                stack.callback(crowd.close)
                crowd.send(h2.headers_frame(1, STREAM))

        eventually(lambda: is_live(server), 30, "gRPC has room")
        for _ in range(8):
            assert is_live(server)
            assert is_served(server)


def test_the_server_takes_the_limit_that_it_may_have_and_models_keep_theirs(
    server: Server,
) -> None:
    # a reader is a copy of the supervisor, and may be idle
    own = {role: {LIMIT} for role in ("supervisor", "broker", "http", "grpc", "metrics")}
    expected = {**own, "fork-server": {LIMIT // 2}, "stub": {LIMIT // 2}}

    def are_so() -> bool:
        with suppress(psutil.NoSuchProcess):  # one that was just made, or has ended
            return expected == {
                role: {psutil.Process(pid).rlimit(resource.RLIMIT_NOFILE)[0] for pid in pids}
                for role, pids in server.pids().items()
            }
        return False

    eventually(are_so, 60, f"each process has the limit that it should have: {expected}")


def test_what_a_parent_limits_ignores_blocks_or_masks_is_as_it_should_be(server: Server) -> None:
    [pid] = server.stub_pids("identity_fp32")
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    [core] = [line for line in limits if line.startswith("Max core file size")]
    assert ["0", "0"] == core.split()[4:6]
    assert "Umask:\t0077\n" in Path(f"/proc/{pid}/status").read_text()

    server.replace_only("stub", "identity_fp32")

    eventually(lambda: is_served(server), 60, "another process serves")
    assert "has died: killed by SIGKILL" in server.log_text()
    assert "No child processes" not in server.log_text()
