"""A server takes the place of another while clients of every protocol ask: no request fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.replacements import clients
from tests.faults.replacements.__main__ import replace_under_load
from tests.faults.replacements.ways import BySystemd, ByTakeOver, OnOnePort, Way
from tests.support.waiting import eventually

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
