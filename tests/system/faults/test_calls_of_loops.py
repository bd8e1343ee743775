"""The table of calls that may wait, in the loops of a server's processes, and the reason for each.

Whatever else touches a file system or a name service, or starts a program, is done by readers,
threads or other processes. A frontend parses in steps and in threads, and a log goes to a thread.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.standard.ctl.system.commands import ctl
from tests.support.certificates import Authority
from tests.support.server import ROOT, Server, ask_add_sub, status_of
from tests.support.waiting import eventually
from zmqtriton_floor.token_file import Grant

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "system/protocols/test_tls.py::test_a_renewed_certificate_is_taken_and_no_connection_is_lost",
        "system/faults/test_loop_turns.py::test_a_loop_that_stands_is_told_with_its_place",
    ),
]


class Allowed(NamedTuple):
    event: str
    #: A function of ours on the stack.
    function: str
    reason: str


TRACING = ("--trace-config=level=TIMESTAMPS", "--trace-config=rate=1")
#: Of the kernel's own memory: no disk, no other machine.
KERNELS_OWN = ("/proc", "b'/proc", "/sys/", "/dev/null", "/dev/shm/")
ALLOWED = (
    Allowed(
        "subprocess.Popen",
        "zmqtriton.supervisor.machine.processes.process:spawn",
        "a fork and the exec of the server's own Python; a process is seldom started",
    ),
    Allowed(
        "os.fork",
        "zmqtriton.supervisor.machine.processes.process:start_copy",
        "a fork, when all readers are slow",
    ),
    Allowed(
        "os.truncate",
        "zmqtriton.host.sealed_memory:anonymous_memory",
        "memory without a file, which takes no pages yet",
    ),
    Allowed(
        "os.symlink",
        "zmqtriton.supervisor.machine.directories.runtime:show",
        "a link in the runtime directory",
    ),
    Allowed(
        "os.utime",
        "zmqtriton_frontends.http_api.server.service:check",
        "gunicorn's heartbeat, a file in the runtime directory",
    ),
    *(
        Allowed("*", function, "loads an installed package, once: most processes never need it")
        for function in (
            "zmqtriton_floor.spans:send",
            "zmqtriton_frontends.gateway.publishers:follow",
            "zmqtriton.supervisor.machine.processes.process:kill_strays",
        )
    ),
    Allowed("*", "zmqtriton.supervisor.service:close", "the end: nobody waits any more"),
)


def unexplained(calls: str, runtime: Path) -> set[str]:
    """Return the calls that no row allows; the runtime directory is local and in memory."""
    places = (*KERNELS_OWN, str(runtime))
    lines = set()
    for line in calls.splitlines():
        _, event, subject, functions = line.split("\t")
        is_allowed = any(
            row.event in ("*", event) and row.function in functions.split() for row in ALLOWED
        )
        if not subject.startswith(places) and not is_allowed:
            lines.add(f"{event} {subject}: {functions}")
    return lines


class Watched(NamedTuple):
    server: Server
    runtime: Path
    calls: Path

    def assert_explained(self) -> None:
        self.server.stop()
        calls = self.calls.read_text()
        assert "subprocess.Popen" in calls, "the loops are watched"
        assert unexplained(calls, self.runtime) == set()


Watch = Callable[..., Watched]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Start a server with these options whose loops are watched."""
    servers: list[Server] = []

    def start(*options: str, frontends: Sequence[str] = ("grpc", "metrics")) -> Watched:
        server = _make(tmp_path, options, frontends)
        servers.append(server)
        return Watched(server.start(), tmp_path / "run", tmp_path / "calls")

    yield start
    for server in servers:
        server.kill()


def _make(tmp_path: Path, options: Sequence[str], frontends: Sequence[str]) -> Server:
    shutil.copy(ROOT / "tests/support/loops/watching.py", tmp_path / "sitecustomize.py")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return Server(
        tmp_path / "s",
        models=["add_sub", "identity_fp32"],
        options=[
            "--model-control-mode=explicit",
            "--load-model=add_sub",
            f"--runtime-directory={tmp_path}/run",
            *options,
        ],
        environment={"PYTHONPATH": path, "ZT_CALLS_OF_LOOPS": f"{tmp_path}/calls"},
        frontends=frontends,
    )


def test_requests_loads_and_operations_make_no_loop_wait(watch: Watch, tmp_path: Path) -> None:
    watched = watch("--zmq-door", *TRACING, f"--trace-config=triton,file={tmp_path}/trace")
    server = watched.server
    over_http = tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    over_grpc = tritonclient.grpc.InferenceServerClient(server.grpc_address)
    assert ask_add_sub(server) == 200
    for verb in ("load", "load", "unload", "load"):
        assert not server.control_model(verb, "identity_fp32")
        code = server.repository / "identity_fp32" / "1" / "model.py"
        code.write_text(f"{code.read_text()}\n# {verb}\n")
    config = {**over_http.get_model_config("add_sub"), "max_batch_size": 4}
    over_http.load_model("add_sub", config=json.dumps(config))
    large = tritonclient.http.InferInput("INPUT0", [400_000], "FP32")
    large.set_data_from_numpy(np.ones(400_000, np.float32))
    over_http.infer("identity_fp32", [large])
    region = Path(f"/dev/shm/zt-{os.getpid()}")
    region.write_bytes(bytes(4096))
    for client in (over_http, over_grpc):
        client.register_system_shared_memory("region", region.name, 4096)
        client.unregister_system_shared_memory("region")
        client.update_trace_settings(settings={"trace_rate": "2"})
        client.update_log_settings({"log_verbose_level": 1})
        client.get_inference_statistics()
        client.is_server_ready()
        client.close()
    region.unlink()
    for place in ("", "/v2/zmqtriton/status", "/v2/zmqtriton/history", "/v2/zmqtriton/logs"):
        assert server.status(place) == 200
    server.metrics_text()
    for command in ("status", "doctor", "explain", "stats", "logs", "reload", "config"):
        done = ctl(server, command)
        assert not done.exit_code, done.output
    for command in ("restart", "stacks", "scale"):
        more = ["2"] if command == "scale" else []
        assert 0 == ctl(server, command, "add_sub", *more).exit_code
    os.kill(server.pid, signal.SIGHUP)

    for role in ("stub", "broker", "http", "grpc", "metrics", "door"):
        [pid, *_] = server.pids()[role]
        os.kill(pid, signal.SIGKILL)
        eventually(partial(_is_replaced, server, role, pid), 60, role)
    eventually(lambda: server.is_ready() and ask_add_sub(server) == 200, 60, "served again")

    watched.assert_explained()


def _is_replaced(server: Server, role: str, pid: int) -> bool:
    pids = server.pids().get(role, [])
    return bool(pids) and pid not in pids


def test_files_of_tokens_and_certificates_are_read_beside_the_loops(
    watch: Watch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "certificates")
    pair = authority.issue("server")
    tokens = tmp_path / "tokens"
    write_tokens(tokens, "first")
    watched = watch(
        f"--tokens={tokens}",
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={pair.cert}",
        f"--grpc-server-key={pair.key}",
        frontends=("grpc",),
    )
    server = watched.server
    write_tokens(tokens, "second")
    authority.issue("server")

    eventually(lambda: status_with(server, "second") == 200, 60, "the new token is good")
    eventually(lambda: "was renewed" in server.log_text(), 60, "the new certificate is used")

    watched.assert_explained()


def write_tokens(path: Path, token: str) -> None:
    path.write_text(f"a sha256:{Grant.digest_of(token).hex()} scopes=infer,control,metrics\n")
    path.chmod(0o600)


def status_with(server: Server, token: str) -> int:
    header = {"Authorization": f"Bearer {token}"}
    return status_of(urllib.request.Request(f"{server.url}/v2/models/add_sub", headers=header))
