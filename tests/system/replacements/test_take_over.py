"""A server takes over what another one has: its sequences, settings, and clients under load."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.faults.replacements.libraries import library_crowd
from tests.faults.replacements.ways import (
    BySystemd,
    ByTakeOver,
    InOneDirectory,
    OneByOne,
    OnOnePort,
    Way,
)
from tests.support.needs import find_tool
from tests.support.server import Server
from tests.system.replacements.replacing import FEW, FEWEST, SMALL, lost_in, replace_once
from tests.system.shared_server import SharedServer
from zmqtriton.ctl.main import cli
from zmqtriton.options import parse
from zmqtriton.start import predecessors
from zmqtriton.start.listeners import PortError

pytestmark = pytest.mark.system


@pytest.mark.long(
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
    "supervisor/control/test_succession.py::test_what_is_told_after_it_has_asked_is_told_before_the_answer",
    "supervisor/control/test_succession.py::test_a_load_that_was_under_way_when_it_asked_goes_over",
)
def test_a_server_that_takes_over_has_what_the_one_before_was_told(tmp_path: Path) -> None:
    explicit = ("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=tokens")
    way = ByTakeOver(tmp_path, (*explicit, *SMALL))
    way.frontends = ()
    with way:
        [before] = way.servers
        for path, document in (
            ("repository/models/identity_fp32/load", {}),
            ("repository/models/add_sub/unload", {}),
            ("logging", {"log_verbose_level": 1}),
            ("trace/setting", {"trace_rate": "7"}),
        ):
            assert 200 == before.request_json(f"/v2/{path}", document)[0], path
        for command in (["scale", "tokens", "2"], ["drain", "identity_fp32"]):
            arguments = [f"--server=pid:{before.pids()['supervisor'][0]}", *command]
            done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
            assert 0 == done.exit_code, done.output
        documents = what_is_told(before)
        assert "drain" in str(documents["models"])
        way.replace()
        assert documents == what_is_told(way.servers[-1])

    assert "not taken over" not in way.log_text()
    states = {name: (state, reason) for name, state, reason in documents["models"]}
    assert ("UNAVAILABLE", "unloaded") == states["add_sub"]
    assert ("UNAVAILABLE", "READY") == (states["identity_fp32"][0], states["tokens"][0])
    assert (2, 400) == (documents["instances"], documents["ready"])


def what_is_told(server: Server) -> dict[str, Any]:
    """Return what a server says of all that it was told while it ran."""
    _, index = server.request_json("/v2/repository/index", {})
    models = [(one["name"], one.get("state"), one.get("reason")) for one in index]
    return {
        "models": sorted(each for each in models if each[1]),
        "log": server.request_json("/v2/logging")[1],
        "trace": server.request_json("/v2/trace/setting")[1],
        "instances": len(server.stub_pids("tokens")),
        "ready": server.status("/v2/models/identity_fp32/ready"),
    }


def test_a_server_that_hangs_is_called_so_by_the_one_that_takes_over(
    shared: SharedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predecessors, "_WITHIN_S", 0.5)
    words = [f"--http-port={shared.http_port}", "--take-over"]
    options = parse([f"--model-repository={shared.repository}", *words])
    os.kill(shared.pid, signal.SIGSTOP)
    try:
        with pytest.raises(PortError) as refusal:
            predecessors.take_over(options)
    finally:
        os.kill(shared.pid, signal.SIGCONT)

    text = str(refusal.value)
    assert f"port {shared.http_port} is in use, and the old server in " in text
    assert "does not answer: timed out" in text


@pytest.mark.row("D46", "L14", "--reuse-http-port", "--reuse-grpc-port")
@pytest.mark.parametrize(
    "kind",
    [
        OnOnePort,
        pytest.param(
            InOneDirectory,
            marks=pytest.mark.long(
                "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command"
            ),
        ),
    ],
)
def test_a_server_is_replaced_without_a_failed_request(
    tmp_path: Path, kind: type[OnOnePort] | type[InOneDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    way = kind(tmp_path, SMALL)

    replace_once(way, FEWEST, monkeypatch)

    assert "Traceback" not in way.log_text()
    assert "not taken over" not in way.log_text()


@pytest.mark.long(
    "system/replacements/test_take_over.py::test_a_server_is_replaced_without_a_failed_request",
    "system/operations/test_socket_activation.py::test_a_restart_fails_no_request",
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
)
@pytest.mark.parametrize("kind", [BySystemd, OnOnePort, InOneDirectory, OneByOne])
def test_clients_of_every_kind_lose_nothing(
    tmp_path: Path, kind: type[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    way = kind(tmp_path)

    crowd = replace_once(way, FEW, monkeypatch)

    assert "Traceback" not in way.log_text()
    assert lost_in(crowd) == 0 or kind in (BySystemd, OnOnePort)
    assert "not taken over" not in way.log_text()


@pytest.mark.long(
    "system/replacements/test_take_over.py::test_a_server_is_replaced_without_a_failed_request"
)
def test_programs_that_people_use_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_tool("h2load", package="nghttp2-client")
    find_tool("curl")

    replace_once(InOneDirectory(tmp_path), library_crowd(), monkeypatch)
