"""A server takes the place of another while clients of every protocol ask: no request fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.faults.replacements import clients
from tests.faults.replacements.__main__ import replace_under_load
from tests.faults.replacements.ways import BySystemd, ByTakeOver, OnOnePort, Way
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton.ctl.main import cli

pytestmark = pytest.mark.system

_FEW = {kind: 1 for kind in clients.CROWD} | {clients.HttpClient: 2, clients.TalkClient: 2}


@pytest.mark.row("D46", "L14", "--reuse-http-port", "--reuse-grpc-port")
@pytest.mark.parametrize("kind", [BySystemd, OnOnePort, ByTakeOver])
def test_a_server_is_replaced_without_a_failed_request(
    tmp_path: Path, kind: type[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    for streaming in (clients.EventsClient, clients.DecoupledClient):
        monkeypatch.setattr(streaming, "count", 8)
    monkeypatch.setattr(clients.TalkClient, "requests", 8)
    # gRPC's clients repeat by themselves what no server has begun; without that they lose a call
    # that they are about to send when they hear that they should go
    monkeypatch.setattr(clients.GrpcClient, "retries", 1)
    way = kind(tmp_path)
    way.start()
    try:
        crowd, _ = asyncio.run(replace_under_load(way, 1, _FEW, pause_s=1.0))
    finally:
        way.close()

    assert [] == [f"{each.label}: {text}" for each in crowd for text in each.failures]
    assert [] == [each.label for each in crowd if not each.right]
    assert "Traceback" not in way.log_text()
    lost = sum(each.lost for each in crowd if isinstance(each, clients.SharedMemoryClient))
    assert lost == 0 or kind is not ByTakeOver


def test_a_server_that_cannot_take_over_changes_nothing(tmp_path: Path) -> None:
    way = ByTakeOver(tmp_path)
    way.start()
    [before] = way.servers
    after = way.next()
    model = clients.MODELS[0]
    (after.repository / model / "1" / "model.py").write_text("raise ValueError('broken')\n")
    try:
        after.launch()
        eventually(lambda: after.returncode is not None, 60, "it gives up")
        assert 200 == before.status(f"/v2/models/{model}/ready")
        assert 1 == after.returncode
        assert "leaves" not in before.log_text()
    finally:
        way.close()


def test_a_server_that_takes_over_has_what_the_one_before_was_told(tmp_path: Path) -> None:
    explicit = ("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=tokens")
    way = ByTakeOver(tmp_path, explicit)
    way.start()
    [before] = way.servers
    try:
        for path, document in (
            ("repository/models/identity_fp32/load", {}),
            ("repository/models/add_sub/unload", {}),
            ("logging", {"log_verbose_level": 1}),
            ("trace/setting", {"trace_rate": "7"}),
        ):
            assert 200 == before.request_json(f"/v2/{path}", document)[0], path
        for command in (["scale", "tokens", "2"], ["drain", "identity_fp32"]):
            arguments = [f"--server={before.pids()['supervisor'][0]}", *command]
            done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
            assert 0 == done.exit_code, done.output
        documents = what_is_told(before)
        assert "drain" in str(documents["models"])
        way.replace()
        assert documents == what_is_told(way.servers[-1])
    finally:
        way.close()

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
