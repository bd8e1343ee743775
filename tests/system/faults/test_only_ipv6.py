"""A machine without IPv4: with default options the server is reached, by our programs, too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machines import only_ipv6
from tests.support.needs import find_tool, skip_missing
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: Asks HTTP and gRPC of the server with the ports in its arguments, and prints the answers.
_CLIENT = f"""
import sys
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
for host in ("[{only_ipv6.ADDRESS}]", "[::1]"):
    for module, port in zip((http_client, grpc_client), sys.argv[1:]):
        with module.InferenceServerClient(f"{{host}}:{{port}}") as client:
            print(client.is_model_ready("add_sub"))
"""


@pytest.fixture
def machine() -> Iterator[list[str]]:
    """The beginning of a command line that is run there."""
    unshare = find_tool("unshare", package="util-linux")
    nsenter = find_tool("nsenter", package="util-linux")
    user = ["--user", "--map-root-user"] if os.geteuid() else []
    command = [unshare, *user, "--net", sys.executable, only_ipv6.__file__, "sh", "-c"]
    # the machine is there as long as this process
    with subprocess.Popen(
        [*command, "echo; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as holder:
        assert holder.stdout is not None
        if not holder.stdout.readline():
            skip_missing("IPv6 in a network namespace of one's own")
        namespaces = ["--user", "--preserve-credentials"] if user else []
        yield [nsenter, f"--target={holder.pid}", *namespaces, "--net"]


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.long(
    "reading/test_policy_reading.py::test_machines_that_others_reach_by_ipv6_alone",
    "start/test_listeners.py::test_grpc_has_a_name_s_address_of_each_family_that_the_machine_has",
)
def test_a_server_without_options_is_reached(tmp_path: Path, machine: list[str]) -> None:
    everywhere = ["--http-address=0.0.0.0", "--grpc-address=0.0.0.0"]
    server = Server(tmp_path / "s", models=["add_sub"], options=everywhere)
    server.wrapper = machine
    server.launch()
    try:
        ports = [str(port) for port in (server.http_port, server.grpc_port)]
        eventually(
            lambda: f"Started Metrics Service at [::]:{server.metrics_port}" in server.log_text(),
            120,
            f"a server on [::]\n{server.log_text()}",
        )
        assert "This machine has addresses of IPv6 alone" in server.log_text()
        assert ["True"] * 4 == _run(*machine, sys.executable, "-c", _CLIENT, *ports).split()

        ctl = [*machine, sys.executable, "-m", "zmqtriton.ctl.main", "--server", ports[0]]
        assert f"http [::]:{ports[0]}, grpc [::]:{ports[1]}" in _run(*ctl, "status")
        assert "OUTPUT0" in _run(*ctl, "infer", "add_sub", "--zeros")
    finally:
        server.stop()
