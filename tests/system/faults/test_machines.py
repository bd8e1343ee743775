"""Machines that take something away from a server: it works there, or says what is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from tests.support import stub_user
from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.machines import forbidden_calls
from tests.support.needs import find_tool, skip_missing
from tests.support.server import Server, ask_add_sub

pytestmark = pytest.mark.system

MODEL = "add_sub"


def _ctl(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `zmqtriton-ctl` as the server runs."""
    command = [*server.wrapper, sys.executable, "-m", "zmqtriton.ctl.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _doctor(server: Server) -> str:
    """Return what the doctor finds where the server would start with its options."""
    said = _ctl(server, "doctor", "--", *server.command[server.command.index("zmqtriton") + 1 :])
    assert (1, "") == (said.returncode, said.stderr)
    return said.stdout


@pytest.mark.long(
    "start/test_start_checks.py::test_a_limit_of_file_sizes_is_no_matter_of_a_seccomp_profile",
    "start/test_start_checks.py::test_an_event_descriptor_that_cannot_be_had_is_named",
)
@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        ("memfd_create", "EPERM", "Operation not permitted"),
        ("pidfd_open", "ENOSYS", "Function not implemented"),
        ("pidfd_send_signal", "EPERM", "Operation not permitted"),
        ("prlimit64", "ENOSYS", "Function not implemented"),
    ],
)
def test_a_call_that_is_forbidden_is_named_at_the_start_and_by_the_doctor(
    tmp_path: Path, call: str, error: str, reason: str
) -> None:
    server = Server(tmp_path / "s", models=[MODEL], environment={"TMPDIR": str(tmp_path)})
    server.wrapper = forbidden_calls.without(error, call)
    server.launch()
    assert 1 == server.wait(60)

    sentence = f"{call}() does not work here: {reason}"
    first, advice = server.log_text().splitlines()
    assert first.startswith(f"error: {sentence}")
    assert "The server needs Linux 5.3" in advice
    assert ["s"] == os.listdir(tmp_path)
    assert first in _doctor(server)


#: A user that nothing else of this machine is, and whom limits of processes bind.
_NUMBER = 40_000 + os.getpid() % 20_000
_NOBODY_ELSE = (f"--reuid={_NUMBER}", f"--regid={_NUMBER}", "--clear-groups")


def _need_user_of_its_own() -> None:
    """Skip a test of a limit that counts all processes of a user, those of the tests among them."""
    if os.geteuid():
        skip_missing("root, who starts a server as a user without other processes,")


def _limited_server(directory: Path, *limits: str, models: Sequence[str] = (MODEL,)) -> Server:
    """A server that has a limit, of processes too, if root or whoever else starts it."""
    server = Server(directory, models=models, frontends=["grpc"])
    server.wrapper = [find_tool("prlimit", package="util-linux"), *limits]
    if not os.geteuid():
        setpriv = find_tool("setpriv", package="util-linux")
        server.wrapper = stub_user.within_reach([setpriv, *_NOBODY_ELSE, *server.wrapper])
        stub_user.open_up(directory)
    return server


@pytest.mark.long(
    "start/test_start_checks.py::test_a_limit_of_the_user_counts_all_its_threads_unless_it_is_privileged",
)
@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("--nproc=7:7", "ulimit -u of the user allows 7 processes and threads, and "),
        (
            "--fsize=4096:500000",
            "ulimit -f allows files of 500000 bytes, which counts for shared",
        ),
    ],
)
def test_a_limit_that_leaves_no_room_is_named_at_the_start_and_by_the_doctor(
    tmp_path: Path, limit: str, sentence: str
) -> None:
    server = _limited_server(tmp_path / "s", limit)
    server.launch()
    assert 1 == server.wait(60)

    said, advice = server.log_text().splitlines()
    assert said.startswith(f"error: {sentence}")
    assert "Raise it" in advice
    # others of the same user may have begun or ended
    counts = re.compile(r"\d+ are there")
    assert counts.sub("", said) in counts.sub("", _doctor(server))


def _limit_frontends(server: Server, limit: str) -> None:
    """Change a limit of the processes that speak to clients, as their user."""
    pids = server.pids()
    for pid in (*pids["http"], *pids["grpc"]):
        # all of the wrapper but the server's own limit
        subprocess.run([*server.wrapper[:-1], f"--pid={pid}", limit], check=True)


def _error_of_large_tensor(server: Server, protocol: str) -> str:
    """Return the error of a request with four megabytes; "" if it is answered."""
    with open_client(server, protocol) as client:
        try:
            client.infer(
                "identity_fp32",
                infer_inputs(module_of(client), INPUT0=np.zeros(1 << 20, np.float32)),
            )
        except InferenceServerException as error:
            return str(error.message())
    return ""


def _error_of_stream(server: Server) -> str:
    errors: SimpleQueue[InferenceServerException | None] = SimpleQueue()
    inputs = infer_inputs(grpc_client, COUNT=np.ones(1, np.int32))
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: errors.put(error))
        client.async_stream_infer("counting", inputs)
        error = errors.get(timeout=60)
        client.stop_stream()
    return "" if error is None else str(error.message())


@pytest.mark.long(
    "system/faults/test_memory_shortage.py::test_a_process_without_room_refuses_what_is_too_large",
    "system/faults/test_memory_shortage.py::test_a_process_without_descriptors_refuses_what_needs_one",
)
def test_a_request_for_which_no_thread_is_to_be_had_is_refused_and_ends_no_process(
    tmp_path: Path,
) -> None:
    _need_user_of_its_own()
    refusal = "No thread is to be had for this request (see ulimit -u, pids.max); retry later"
    models = ["identity_fp32", "counting"]
    with _limited_server(tmp_path / "s", "--nproc=100:100", models=models) as server:
        pids = server.pids()
        _limit_frontends(server, "--nproc=1:100")

        for protocol in ("http", "grpc"):
            assert refusal == _error_of_large_tensor(server, protocol)
        assert refusal == _error_of_stream(server)

        _limit_frontends(server, "--nproc=100:100")
        for protocol in ("http", "grpc"):
            assert "" == _error_of_large_tensor(server, protocol)
        assert "" == _error_of_stream(server)
        assert pids == server.pids()


@pytest.mark.long(
    "start/test_start_checks.py::test_a_limit_of_the_user_counts_all_its_threads_unless_it_is_privileged",
    "start/test_start_checks.py::test_programs_say_in_their_own_words_that_they_cannot_have_a_thread",
)
def test_an_instance_that_cannot_be_started_says_which_limit_is_in_the_way(tmp_path: Path) -> None:
    _need_user_of_its_own()
    with _limited_server(tmp_path / "s", "--nproc=40:40") as server:
        server.edit_config(MODEL, "count: 1", "count: 40")

        said = _ctl(server, "--server", f":{server.http_port}", "reload", MODEL)

        assert 1 == said.returncode
        assert "ulimit -u of the user allows 40 processes and threads" in said.stderr
        assert 200 == ask_add_sub(server)
