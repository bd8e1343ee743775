"""Real proxies with the configurations that `zmqtriton-ctl proxy` prints, before two servers."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.ctl.proxy.programs import KINDS, run_command
from tests.faults.stamps import MODEL, SteadyLoad
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually
from zmqtriton.ctl.client import ServerSelector, connect

pytestmark = pytest.mark.system

PER_SECOND, CLIENTS = 100, 8


class Proxy(NamedTuple):
    http_port: int
    grpc_port: int

    def status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http_port}{path}", timeout=20
            ) as a:
                return int(a.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0


@pytest.fixture(scope="module")
def announcements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("announcements")


@pytest.fixture(scope="module")
def servers(
    announcements: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    with ExitStack() as stack:
        found = []
        for name in ("a", "b"):
            directory = tmp_path_factory.mktemp(name) / "s"
            options = [f"--announce={announcements / name}.json"]
            server = Server(directory, [MODEL, "add_sub"], options=options)
            found.append(stack.enter_context(server))
        a, b = found
        yield a, b


@contextmanager
def proxy_of(kind: str, announcements: Path, directory: Path, *options: str) -> Iterator[Proxy]:
    """A proxy that has been configured from announcements, and is ready."""
    http, grpc = free_ports(2)
    where = [f"--http=127.0.0.1:{http}", f"--grpc=127.0.0.1:{grpc}", "--statistics="]
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "proxy", kind, str(announcements)]
    text = subprocess.run([*command, *where, *options], capture_output=True, check=True).stdout
    # Envoy goes by the end of the name
    (directory / "proxy.yaml").write_bytes(text)
    running = run_command(kind, directory / "proxy.yaml")
    with (
        (directory / "proxy.log").open("wb") as log,
        subprocess.Popen(running, stdout=log, stderr=log) as process,
    ):
        try:
            proxy = Proxy(http, grpc)
            paths = ["/v2/health/ready", f"/v2/models/{MODEL}/ready"]
            eventually(lambda: [proxy.status(path) for path in paths] == [200, 200], 60)
            yield proxy
        finally:
            process.terminate()


def infer_over_grpc(proxy: Proxy) -> None:
    with grpc_client.InferenceServerClient(f"127.0.0.1:{proxy.grpc_port}") as client:
        eventually(lambda: is_grpc_ready(client), 60)
        inputs = []
        for name in ("INPUT0", "INPUT1"):
            tensor = grpc_client.InferInput(name, [1, 16], "FP32")
            tensor.set_data_from_numpy(np.ones((1, 16), np.float32))
            inputs.append(tensor)
        for _ in range(20):
            client.infer("add_sub", inputs)


def is_grpc_ready(client: grpc_client.InferenceServerClient) -> bool:
    try:
        return bool(client.is_server_ready())
    except grpc_client.InferenceServerException:
        return False


def answered(server: Server, model: str) -> int:
    return int(server.statistics(model)["inference_stats"]["success"]["count"])


@pytest.mark.parametrize("kind", KINDS)
def test_each_proxy_deals_requests_of_one_connection_to_both_servers(
    kind: str, servers: tuple[Server, Server], announcements: Path, tmp_path: Path
) -> None:
    before = [(answered(s, MODEL), answered(s, "add_sub")) for s in servers]

    with proxy_of(kind, announcements, tmp_path) as proxy:
        with SteadyLoad(proxy.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking:
            eventually(lambda: len(asking.answers) > PER_SECOND // 2, 60)
        infer_over_grpc(proxy)

    assert [] == asking.failed()
    for server, (stamped, add_sub) in zip(servers, before, strict=True):
        assert answered(server, MODEL) > stamped, "over HTTP"
        assert answered(server, "add_sub") > add_sub, "over gRPC"


def test_a_server_that_drains_gets_nothing_until_it_is_undrained(
    servers: tuple[Server, Server], announcements: Path, tmp_path: Path
) -> None:
    _, b = servers
    with (
        proxy_of("haproxy", announcements, tmp_path) as proxy,
        SteadyLoad(proxy.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking,
        connect(ServerSelector(name=str(b.http_port))) as operator,
    ):
        operator.call("drain", {"model": ""})
        before = answered(b, MODEL)
        count = len(asking.answers)
        eventually(lambda: len(asking.answers) > count + PER_SECOND, 60)
        assert before == answered(b, MODEL)
        operator.call("undrain", {"model": ""})
        eventually(lambda: answered(b, MODEL) > before, 60)

    assert [] == asking.failed()


def test_with_a_server_that_is_killed_only_what_it_executes_is_lost(
    servers: tuple[Server, Server], announcements: Path, tmp_path: Path
) -> None:
    careful, repeating = tmp_path / "careful", tmp_path / "repeating"
    careful.mkdir()
    repeating.mkdir()
    with (
        proxy_of("haproxy", announcements, careful) as proxy,
        proxy_of("haproxy", announcements, repeating, "--may-repeat") as other,
        SteadyLoad(proxy.http_port, per_second=PER_SECOND // 2, clients=CLIENTS) as asking,
        SteadyLoad(other.http_port, per_second=PER_SECOND // 2, clients=CLIENTS) as others,
    ):
        eventually(lambda: min(len(asking.answers), len(others.answers)) > PER_SECOND, 60)
        servers[0].kill()
        counts = [len(asking.answers), len(others.answers)]
        eventually(lambda: len(asking.answers) > counts[0] + PER_SECOND, 60)
        eventually(lambda: len(others.answers) > counts[1] + PER_SECOND, 60)

    # each client has one request under way, and can lose no other
    assert len(asking.failed()) <= CLIENTS
    assert [] == others.failed()
