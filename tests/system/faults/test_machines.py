"""Machines that take something away from a server: it works there, or says what is missing."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc as grpcclient
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.faults.requests import STREAM
from tests.support import raw_http2 as h2
from tests.support import stub_user
from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.machines import forbidden_calls
from tests.support.needs import find_tool, skip_missing
from tests.support.server import Server, ask_add_sub
from tests.support.small_container import memory_group, oom_kills
from tests.support.waiting import eventually
from tests.system.attacks.connections import INFER, connect, is_served

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


MEMORY_LIMIT = 400 << 20
SIZE = 40 << 20


def _post(server: Server, is_chunked: bool) -> int:
    """Send a large tensor over HTTP; the status, 0 if the connection broke."""
    tensor = {"name": "INPUT0", "shape": [SIZE // 4], "datatype": "FP32"}
    text = json.dumps(
        {
            "inputs": [{**tensor, "parameters": {"binary_data_size": SIZE}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    if not is_chunked:
        headers["Content-Length"] = str(len(text) + SIZE)
    body = iter([text, *[bytes(1 << 20)] * (SIZE >> 20)])
    url = f"{server.url}/v2/models/identity_fp32/infer"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body, headers), timeout=60
        ) as answer:
            while answer.read(1 << 20):
                pass
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def _call(server: Server) -> str:
    """Send it over gRPC; the status."""
    with grpcclient.InferenceServerClient(server.grpc_address) as client:
        [tensor] = infer_inputs(grpcclient, INPUT0=np.zeros(SIZE // 4, np.float32))
        try:
            client.infer("identity_fp32", [tensor], client_timeout=60)
        except InferenceServerException as error:
            return str(error.status())
    return "OK"


@pytest.mark.parametrize(
    "way",
    [
        "http",
        *(
            pytest.param(
                way,
                marks=pytest.mark.long(
                    "system/faults/test_machines.py::test_ten_large_bodies_at_once_end_no_process",
                    "frontends/http_api/server/test_large_bodies.py::"
                    "test_bodies_in_the_arena_that_do_not_fit_beside_others_are_refused",
                ),
            )
            for way in ("chunked", "grpc")
        ),
    ],
)
def test_ten_large_bodies_at_once_end_no_process(tmp_path: Path, way: str) -> None:
    with memory_group(MEMORY_LIMIT) as prefix, ThreadPoolExecutor(10) as pool:
        frontends = ("grpc",) if way == "grpc" else ()
        server = Server(tmp_path / "s", models=["identity_fp32"], frontends=frontends)
        server.wrapper = prefix
        with server:
            before = server.pids()

            if way == "grpc":
                results: list[object] = list(pool.map(lambda _: _call(server), range(10)))
            else:
                results = list(pool.map(lambda _: _post(server, way == "chunked"), range(10)))

            assert 0 == oom_kills(server.pid), results
            assert before == server.pids()
            assert set(results) <= {
                200,
                503,
                "OK",
                "StatusCode.UNAVAILABLE",
                "StatusCode.RESOURCE_EXHAUSTED",
            }
            assert _post(server, False) in (200, 503)
