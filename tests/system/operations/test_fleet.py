"""`zmqtriton-ctl fleet` with two real servers that were announced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.stamps import MODEL, SteadyLoad, write_stamp
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

KEY = "--header=admin-key: secret"
PER_SECOND = 50


@pytest.fixture(scope="module")
def announcements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("announcements")


@pytest.fixture(scope="module")
def servers(
    announcements: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    options = [
        "--model-control-mode=explicit",
        f"--load-model={MODEL}",
        "--http-restricted-api=steering:admin-key=secret",
    ]
    with ExitStack() as stack:
        found = []
        for name in ("a", "b"):
            announced = f"--announce={announcements / name}.json"
            directory = tmp_path_factory.mktemp(name) / "s"
            server = Server(directory, [MODEL, "add_sub"], options=[*options, announced])
            found.append(stack.enter_context(server))
        a, b = found
        yield a, b


def fleet(announcements: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "fleet", *words]
    environment = {**os.environ, "ZMQTRITON_FLEET": str(announcements)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


def address(server: Server) -> str:
    return f"127.0.0.1:{server.http_port}"


def test_a_new_version_reaches_one_server_after_the_other_and_no_request_fails(
    servers: tuple[Server, Server], announcements: Path
) -> None:
    for server in servers:
        write_stamp(server, 2)
    a, b = servers
    with (
        SteadyLoad(a.http_port, per_second=PER_SECOND) as first,
        SteadyLoad(b.http_port, per_second=PER_SECOND) as second,
    ):
        # clients that never look at its readiness
        done = fleet(announcements, KEY, "rollout", MODEL, "--drain", "--drain-within=1")
        counts = len(first.answers), len(second.answers)
        eventually(lambda: len(first.answers) > counts[0] + 20, 60)
        eventually(lambda: len(second.answers) > counts[1] + 20, 60)

    assert 0 == done.returncode, done.stderr
    assert 2 == done.stdout.count("has the new version")
    steps = [line.partition(": ")[2] for line in done.stderr.splitlines()]
    assert ["draining", "loading", "undraining", "waiting until it is ready"] * 2 == steps
    for asking in (first, second):
        assert [] == asking.failed()
        assert {2} == set(asking.answers[-1].stamps)


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

    assert 1 == done.returncode
    assert "broken" in done.stderr
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[1:])
    outcomes = [rows[address(server)].strip() for server in servers]
    assert "failed to load it and goes on with the old version" == outcomes[first]
    assert "has the old version" == outcomes[1 - first]
    assert 0 == fleet(announcements, "status").returncode, "all are ready, none is drained"


def test_each_server_is_shown_changed_and_drained(
    servers: tuple[Server, Server], announcements: Path
) -> None:
    a, b = servers

    assert 0 == fleet(announcements, "load", "add_sub").returncode
    assert 200 == a.status("/v2/models/add_sub/ready") == b.status("/v2/models/add_sub/ready")
    shown = fleet(announcements, "status", "--models").stdout
    assert 2 == shown.count("add_sub")
    assert f"{address(b)}: unloaded\n" in fleet(announcements, "unload", "add_sub").stdout
    assert "no server serves 'add_sub'" in fleet(announcements, "rollout", "add_sub").stderr

    assert "2 servers at once" in fleet(announcements, KEY, "drain").stderr
    refused = fleet(announcements, "--on", address(b), "drain")
    assert (1, "") == (refused.returncode, refused.stdout)
    assert "403" in refused.stderr
    drained = fleet(announcements, KEY, "--on", address(b), "drain")
    assert f"{address(b)}: drained\n" == drained.stdout
    seen = fleet(announcements, "status", "-o", "json")
    states = {each["server"]: each["state"] for each in json.loads(seen.stdout)}
    assert {address(a): "ready", address(b): "draining"} == states
    assert 1 == seen.returncode
    assert 0 == fleet(announcements, KEY, "undrain").returncode

    b.kill()
    eventually(lambda: "\tended\t" in fleet(announcements, "status").stdout, 60)
    loaded = fleet(announcements, "load", MODEL)
    assert (0, f"{address(a)}: loaded\n") == (loaded.returncode, loaded.stdout)
    assert f"left out: {address(b)} (ended)\n" == loaded.stderr
