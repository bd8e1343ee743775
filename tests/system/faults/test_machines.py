"""Machines that take something away from a server: it works there, or says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.conftest import find_tool
from tests.support.clients import infer_inputs
from tests.support.machines import forbidden_calls
from tests.support.server import Server, ask_add_sub

pytestmark = pytest.mark.system

MODEL = "add_sub"


def test_what_nobody_may_raise_stays_as_it_is(tmp_path: Path) -> None:
    # As in most containers, where root may not raise a limit either.
    limited = ["sh", "-c", 'ulimit -c 0; exec "$@"', "sh"]
    if not os.geteuid():
        setpriv = find_tool("setpriv", package="util-linux")
        limited = [setpriv, "--bounding-set=-sys_resource", *limited]
    server = Server(tmp_path / "s", models=[MODEL], frontends=())
    server.wrapper = limited
    with server:
        assert 200 == ask_add_sub(server)

        [pid] = server.stub_pids(MODEL)
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
        [core] = [line for line in limits if line.startswith("Max core file size")]
        assert ["0", "0"] == core.split()[4:6]


def test_a_server_whose_standard_streams_are_closed_serves(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=[MODEL])
    server.wrapper = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    with server:
        assert 200 == ask_add_sub(server)
        assert {"supervisor", "http", "grpc", "metrics", "broker"} <= server.pids().keys()
    assert 0 == server.returncode
    assert "" == server.log_text()


def test_a_repository_at_the_root_of_a_file_system_is_served(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=[MODEL], frontends=())
    (server.repository / "lost+found").mkdir()
    with server:
        assert 200 == ask_add_sub(server)
    assert "lost+found' is left out: it is a file system's" in server.log_text()


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        ("pidfd_open", "ENOSYS", "Function not implemented"),
        ("pidfd_send_signal", "EPERM", "Operation not permitted"),
        ("memfd_create", "EPERM", "Operation not permitted"),
        ("prlimit64", "ENOSYS", "Function not implemented"),
    ],
)
def test_a_call_that_is_forbidden_is_named_at_the_start_and_by_the_doctor(
    tmp_path: Path, call: str, error: str, reason: str
) -> None:
    server = Server(tmp_path / "s", models=[MODEL], environment={"TMPDIR": str(tmp_path)})
    server.wrapper = forbidden_calls.without(error, call)
    server.launch()
    assert server.process is not None
    assert 1 == server.process.wait(60)

    sentence = f"{call}() does not work here: {reason}"
    first, advice = server.log_text().splitlines()
    assert first.startswith(f"error: {sentence}")
    assert "The server needs Linux 5.3" in advice
    assert ["s"] == os.listdir(tmp_path)
    doctor = [sys.executable, "-m", "zmqtriton.ctl.main", "doctor", "--", *server.command[-1:]]
    said = subprocess.run(
        [*server.wrapper, *doctor], capture_output=True, text=True, timeout=60, check=False
    )
    assert (1, "") == (said.returncode, said.stderr)
    assert first in said.stdout


def test_large_tensors_pass_where_memory_cannot_be_reserved(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=["identity_fp32"], frontends=["grpc"])
    server.wrapper = forbidden_calls.without("EPERM", "fallocate")
    with server:
        array = np.arange(1 << 20, dtype=np.float32)
        for module, address in ((http_client, server.url[7:]), (grpc_client, server.grpc_address)):
            with module.InferenceServerClient(address) as client:
                answer = client.infer("identity_fp32", infer_inputs(module, INPUT0=array))
                assert np.array_equal(array, answer.as_numpy("OUTPUT0"))
