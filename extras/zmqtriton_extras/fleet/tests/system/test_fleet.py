"""Two real servers that were announced: behind proxies, and as `zmqtriton-ctl fleet` sees them."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.faults.stamps import MODEL, SteadyLoad, write_stamp
from tests.support.clients import infer_inputs
from tests.support.needs import ROOT
from tests.support.server import Server, free_ports, status_of
from tests.support.waiting import eventually
from zmqtriton.control_client import ServerSelector
from zmqtriton_extras.fleet.tests.proxies.programs import KINDS, run_command
from zmqtriton_extras.fleet.tests.proxies.running import RunningProxy, proxy_of

pytestmark = pytest.mark.system

KEY = "--header=admin-key: secret"
PER_SECOND, CLIENTS = 100, 8
DOMAIN = "models.example"


@pytest.fixture(scope="module")
def announcements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("announcements")


@pytest.fixture(scope="module")
def servers(
    announcements: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    with ExitStack() as stack:
        a, b = (
            stack.enter_context(
                announced(name, tmp_path_factory.mktemp(name) / "s", announcements, "add_sub")
            )
            for name in ("a", "b")
        )
        yield a, b


def announced(name: str, directory: Path, announcements: Path, *models: str) -> Server:
    options = [
        "--model-control-mode=explicit",
        "--load-model=*",
        "--http-restricted-api=steering:admin-key=secret",
        f"--id={name}",
        f"--announce={announcements / name}.json",
    ]
    return Server(directory, [MODEL, *models], options=options, frontends=("grpc",))


def fleet(announcements: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "fleet", *words]
    environment = {**os.environ, "ZMQTRITON_FLEET": str(announcements)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


def address(server: Server) -> str:
    return f"127.0.0.1:{server.http_port}"


def infer_over_grpc(proxy: RunningProxy) -> None:
    with grpc_client.InferenceServerClient(f"127.0.0.1:{proxy.grpc_port}") as client:
        eventually(lambda: is_grpc_ready(client), 60)
        ones = np.ones((1, 16), np.float32)
        inputs = infer_inputs(grpc_client, INPUT0=ones, INPUT1=ones)
        for _ in range(20):
            client.infer("add_sub", inputs)


def is_grpc_ready(client: grpc_client.InferenceServerClient) -> bool:
    try:
        return bool(client.is_server_ready())
    except grpc_client.InferenceServerException:
        return False


def failed_calls(proxy: RunningProxy, authority: str, model: str = "") -> int:
    """Return the number of failures of 20 inferences by a client that calls the host so."""
    ones = np.ones((1, 16), np.float32)
    inputs = infer_inputs(grpc_client, INPUT0=ones, INPUT1=ones)
    headers = {"x-model": model} if model else None
    failed = 0
    with grpc_client.InferenceServerClient(
        f"127.0.0.1:{proxy.grpc_port}", channel_args=[("grpc.default_authority", authority)]
    ) as client:
        eventually(lambda: is_grpc_ready(client), 60)
        for _ in range(20):
            try:
                client.infer("add_sub", inputs, headers=headers)
            except grpc_client.InferenceServerException:
                failed += 1
    return failed


def state_of(model: str, announcement: Path) -> str:
    """The state of a model on a server, and its reason, as they were announced."""
    models = json.loads(announcement.read_text())["models"]
    [entry] = [each for each in models if each["name"] == model]
    return f"{entry['state']} {entry.get('reason', '')}".strip()


def infer_by_name(port: int, sequence: str = "") -> int:
    """The status of an inference whose client calls the server by a name."""
    tensor = {"shape": [1, 16], "datatype": "FP32", "data": [1] * 16}
    body = {"inputs": [{"name": name, **tensor} for name in ("INPUT0", "INPUT1")]}
    headers = {"Host": "models.example"} | ({"X-Sequence": sequence} if sequence else {})
    url = f"http://127.0.0.1:{port}/v2/models/add_sub/infer"
    return status_of(urllib.request.Request(url, json.dumps(body).encode(), headers))


def answered(server: Server, model: str) -> int:
    return int(server.statistics(model)["inference_stats"]["success"]["count"])


@pytest.mark.parametrize("kind", KINDS)
def test_each_proxy_deals_requests_of_one_connection_to_both_servers(
    kind: str, servers: tuple[Server, Server], announcements: Path, tmp_path: Path
) -> None:
    before = [(answered(s, MODEL), answered(s, "add_sub")) for s in servers]

    affinity = "--affinity-header=X-Session"
    with proxy_of(kind, announcements, tmp_path, affinity, model=MODEL) as proxy:
        sessions = [f"session-{number}" for number in range(16)]

        def homes(header: str) -> list[str]:
            return [proxy.server_of(session, header) for session in sessions]

        def is_settled() -> bool:
            return len(set(homes("X-Session"))) == 2 and homes("X-Session") == homes("x-session")

        # sessions move when a server comes, and with the weights that servers report
        eventually(is_settled, 60)
        with SteadyLoad(proxy.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking:
            eventually(lambda: len(asking.answers) > PER_SECOND // 2, 60)
        infer_over_grpc(proxy)

    assert asking.failed() == []
    for server, (stamped, add_sub) in zip(servers, before, strict=True):
        assert answered(server, MODEL) > stamped, "over HTTP"
        assert answered(server, "add_sub") > add_sub, "over gRPC"


@pytest.mark.parametrize(
    "kind",
    [
        KINDS[0],
        *(
            pytest.param(
                kind,
                marks=pytest.mark.long(
                    "extras/fleet/system/test_fleet.py::test_clients_of_servers_on_loopback_use_the_name_of_the_proxy",
                    "extras/fleet/proxies/test_configurations.py::test_servers_on_loopback_are_called_by_their_address_and_others_as_clients_do",
                ),
            )
            for kind in KINDS[1:]
        ),
    ],
)
def test_clients_of_servers_on_loopback_use_the_name_of_the_proxy(
    kind: str, servers: tuple[Server, Server], announcements: Path, tmp_path: Path
) -> None:
    assert {421} == {infer_by_name(server.http_port) for server in servers}

    with proxy_of(kind, announcements, tmp_path, model=MODEL) as proxy:
        before = [answered(server, "add_sub") for server in servers]
        # some with the header of a sequence, for which proxies have routes of their own
        statuses = [infer_by_name(proxy.http_port, f"{n}" if n % 2 else "") for n in range(16)]
        page = {"Origin": "http://models.example", "Host": "models.example"}
        url = f"http://127.0.0.1:{proxy.http_port}/v2/logging"
        assert status_of(urllib.request.Request(url, b"{}", page)) == 403, "is still for no page"

    assert statuses == [200] * 16
    assert all(answered(s, "add_sub") > n for s, n in zip(servers, before, strict=True))


def test_each_proxy_leads_calls_over_grpc_to_servers_with_their_model(
    servers: tuple[Server, Server], announcements: Path, tmp_path: Path
) -> None:
    a, _ = servers
    announced = announcements / "a.json"
    assert a.control_model("unload", "add_sub") == ""
    eventually(lambda: state_of("add_sub", announced) == "UNAVAILABLE unloaded", 60)
    try:
        for kind in KINDS:
            (directory := tmp_path / kind).mkdir()
            domain = f"--model-domain={DOMAIN}"
            with proxy_of(kind, announcements, directory, domain, model=MODEL) as proxy:
                # as it is chosen, and as it is in an address of DNS
                for port in ("", f":{proxy.grpc_port}"):
                    assert failed_calls(proxy, f"add_sub.{DOMAIN}{port}") == 0, kind
                assert failed_calls(proxy, f"other.{DOMAIN}", "add_sub") == 0, kind
                assert failed_calls(proxy, f"other.{DOMAIN}"), "goes to either server"
    finally:
        assert a.control_model("load", "add_sub") == ""
        eventually(lambda: state_of("add_sub", announced) == "READY", 60)


def test_the_file_of_haproxy_for_two_servers_serves_such_on_loopback(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text("utf-8")
    a, b = servers
    http, of_grpc = free_ports(2)
    ports = {8000: http, 8001: of_grpc, 9000: a.http_port, 9001: a.grpc_port}
    ports |= {9010: b.http_port, 9011: b.grpc_port}
    configuration = tmp_path / "haproxy.cfg"
    pattern = r"\b(8000|8001|90[01][01])\b"
    configuration.write_text(re.sub(pattern, lambda match: str(ports[int(match[1])]), text))

    with subprocess.Popen(run_command("haproxy", configuration)) as process:
        try:
            eventually(lambda: infer_by_name(http) == 200, 60)
        finally:
            process.terminate()


def test_a_server_that_drains_gets_nothing_until_it_is_undrained(
    servers: tuple[Server, Server], announcements: Path, tmp_path: Path
) -> None:
    _, b = servers
    with (
        proxy_of("haproxy", announcements, tmp_path, model=MODEL) as proxy,
        SteadyLoad(proxy.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking,
        ServerSelector(name=str(b.http_port)).connect() as operator,
    ):
        operator.call("drain", {"model": ""})
        before = answered(b, MODEL)
        count = len(asking.answers)
        eventually(lambda: len(asking.answers) > count + PER_SECOND, 60)
        assert before == answered(b, MODEL)
        operator.call("undrain", {"model": ""})
        eventually(lambda: answered(b, MODEL) > before, 60)

    assert asking.failed() == []


@pytest.mark.long(
    "extras/fleet/proxies/test_haproxy_commands.py::test_servers_come_and_go_without_a_reload"
)
def test_a_sequence_stays_on_its_server_when_haproxy_reads_its_file_again(
    servers: tuple[Server, Server], announcements: Path, tmp_path: Path
) -> None:
    names = [str(number) for number in range(16)]
    with proxy_of("haproxy", announcements, tmp_path, model=MODEL) as proxy:

        def have_stayed() -> bool:
            # a worker that is younger still waits for what an older one would tell it
            eventually(lambda: proxy.age_s(time.time()) > 11, 60)
            before = {name: proxy.server_of(name) for name in names}
            assert {"a", "b"} == set(before.values())
            proxy.reload()
            # in another order, since new ones are dealt in turn
            random.Random(1).shuffle(names)
            return before == {name: proxy.server_of(name) for name in names}

        eventually(have_stayed, 60)


def test_a_new_version_reaches_one_server_after_the_other_and_no_request_fails(
    servers: tuple[Server, Server], announcements: Path
) -> None:
    for server in servers:
        write_stamp(server, 2)
    a, b = servers
    with (
        SteadyLoad(a.http_port, per_second=PER_SECOND // 2) as first,
        SteadyLoad(b.http_port, per_second=PER_SECOND // 2) as second,
    ):
        # clients that never look at its readiness
        done = fleet(announcements, KEY, "rollout", MODEL, "--drain", "--drain-within=1")
        counts = len(first.answers), len(second.answers)
        eventually(lambda: len(first.answers) > counts[0] + 20, 60)
        eventually(lambda: len(second.answers) > counts[1] + 20, 60)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("has the new version") == 2
    steps = [line.partition(": ")[2] for line in done.stderr.splitlines()]
    assert steps == ["draining", "loading", "undraining", "waiting until it is ready"] * 2
    for asking in (first, second):
        assert asking.failed() == []
        assert {2} == set(asking.answers[-1].stamps)


@pytest.mark.long(
    "extras/fleet/servers/test_rollout.py::test_the_first_failure_ends_it",
    "extras/fleet/servers/test_rollout.py::test_after_a_failure_it_says_how_to_go_on_and_back",
    "extras/fleet/system/test_fleet.py::test_a_new_version_reaches_one_server_after_the_other_and_no_request_fails",
)
def test_a_rollout_stops_at_the_first_failure(
    servers: tuple[Server, Server], announcements: Path
) -> None:
    codes = [server.repository / MODEL / "1" / "model.py" for server in servers]
    good = [code.read_text() for code in codes]
    order = json.loads(fleet(announcements, "status", "-o", "json").stdout)
    first = [each["server"] for each in order].index(address(servers[0]))
    for code in codes:
        code.write_text("raise ValueError('broken')\n")
    try:
        done = fleet(announcements, KEY, "rollout", MODEL, "--drain")
    finally:
        for code, text in zip(codes, good, strict=True):
            code.write_text(text)

    assert done.returncode == 1
    assert "broken" in done.stderr
    assert "to go on, mend the model, then: zmqtriton-ctl fleet --on " in done.stderr
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[1:])
    outcomes = [rows[address(server)].strip() for server in servers]
    assert outcomes[first] == "failed to load it and goes on with the old version"
    assert outcomes[1 - first] == "has the old version"
    assert fleet(announcements, "status").returncode == 0, "all are ready, none is drained"


def test_each_server_is_shown_changed_and_drained(
    servers: tuple[Server, Server], announcements: Path
) -> None:
    a, b = servers

    assert fleet(announcements, "load", "add_sub").returncode == 0
    assert 200 == a.status("/v2/models/add_sub/ready") == b.status("/v2/models/add_sub/ready")
    shown = fleet(announcements, "status", "--models").stdout
    assert shown.count("add_sub") == 2
    assert f"{address(b)}: unloaded\n" in fleet(announcements, "unload", "add_sub").stdout
    assert "no server serves 'add_sub'" in fleet(announcements, "rollout", "add_sub").stderr
    assert fleet(announcements, "infer", "add_sub", "--zeros").returncode == 1, "it is unloaded"
    assert fleet(announcements, "load", "add_sub").returncode == 0

    assert "2 servers at once" in fleet(announcements, KEY, "drain").stderr
    refused = fleet(announcements, "--on", address(b), "drain")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "403" in refused.stderr
    drained = fleet(announcements, KEY, "--on", address(b), "drain")
    assert f"{address(b)}: drained\n" == drained.stdout
    seen = fleet(announcements, "status", "-o", "json")
    states = {each["server"]: each["state"] for each in json.loads(seen.stdout)}
    assert {address(a): "ready", address(b): "draining"} == states
    assert seen.returncode == 1
    assert fleet(announcements, KEY, "undrain").returncode == 0
    fewer = fleet(announcements, "status", "--expect=3")
    assert (fewer.returncode, fewer.stderr) == (1, "2 of 3 servers are ready\n")


def test_one_request_is_asked_on_each_server(
    servers: tuple[Server, Server], announcements: Path
) -> None:
    before = [answered(server, MODEL) for server in servers]

    done = fleet(announcements, "infer", MODEL, "--zeros", "-o", "json")

    assert done.returncode == 0, done.stderr
    seen = {each["server"]: each for each in json.loads(done.stdout)}
    assert set(map(address, servers)) == set(seen)
    assert len({each["outputs"] for each in seen.values()}) == 1
    assert [count + 1 for count in before] == [answered(server, MODEL) for server in servers]


@pytest.mark.long(
    "extras/fleet/proxies/test_repeating.py::test_a_request_is_repeated_however_its_body_came"
)
def test_with_a_server_that_is_killed_only_what_it_executes_is_lost(
    servers: tuple[Server, Server], announcements: Path, tmp_path: Path
) -> None:
    _, left = servers
    for name in ("careful", "repeating", "fleet"):
        (tmp_path / name).mkdir()
    own = tmp_path / "fleet"
    (own / "b.json").symlink_to(announcements / "b.json")
    with (
        announced("a", tmp_path / "s", own) as killed,
        proxy_of("haproxy", own, tmp_path / "careful", model=MODEL) as proxy,
        proxy_of("haproxy", own, tmp_path / "repeating", "--may-repeat", model=MODEL) as other,
    ):
        with (
            SteadyLoad(proxy.http_port, per_second=PER_SECOND // 2, clients=CLIENTS) as asking,
            SteadyLoad(other.http_port, per_second=PER_SECOND // 2, clients=CLIENTS) as others,
        ):
            eventually(lambda: min(len(asking.answers), len(others.answers)) > PER_SECOND, 60)
            killed.kill()
            counts = [len(asking.answers), len(others.answers)]
            eventually(lambda: len(asking.answers) > counts[0] + PER_SECOND, 60)
            eventually(lambda: len(others.answers) > counts[1] + PER_SECOND, 60)

        # it is left out of the fleet
        gone, at = address(killed), address(left)
        eventually(lambda: f"{gone}\tended\t" in fleet(own, "status").stdout, 60)
        loaded = fleet(own, "load", MODEL)

    # each client has one request under way, and can lose no other
    assert len(asking.failed()) <= CLIENTS
    assert others.failed() == []
    assert (0, f"{at}: loaded\n") == (loaded.returncode, loaded.stdout)
    assert f"left out: {gone} (ended)\n" == loaded.stderr
