"""A replacement under a few clients, and what the servers are asked and told before and after."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.faults.replacements import clients
from tests.faults.replacements.__main__ import replace_under_load
from tests.faults.replacements.ways import Way
from zmqtriton.control_client import ServerSelector

FEW = {kind: 1 for kind in clients.CROWD} | {clients.HttpClient: 2, clients.TalkClient: 2}
#: One of each protocol, and streams that are open meanwhile.
FEWEST = dict.fromkeys(
    (clients.HttpClient, clients.EventsClient, clients.GrpcClient, clients.TalkClient), 1
)

#: Of servers that are not replaced under load: one process of each protocol, which start sooner.
SMALL = ("--http-workers=1", "--grpc-processes=1", "--allow-metrics=false")


def replace_once(way: Way, numbers: clients.Crowd, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Start a server, and replace it once as replace_running() does."""
    with way:
        return replace_running(way, numbers, monkeypatch)


def replace_running(way: Way, numbers: clients.Crowd, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace the server once under a few clients, of which none fails, and return these."""
    for streaming in (clients.EventsClient, clients.DecoupledClient):
        monkeypatch.setattr(streaming, "count", 8)
    monkeypatch.setattr(clients.TalkClient, "requests", 8)
    # gRPC's clients repeat by themselves what no server has begun; without that they lose a call
    # that they are about to send when they hear that they should go
    monkeypatch.setattr(clients.GrpcClient, "retries", 1)
    crowd, _ = asyncio.run(replace_under_load(way, 1, numbers, pause_s=0.5))

    # their texts are said here, since pytest says only those of tests
    failures = [f"{each.label}: {text}" for each in crowd for _, text in each.failures]
    assert [] == failures, (failures, way.log_text()[-4000:])
    idle = [each.label for each in crowd if not each.right]
    assert [] == idle, (idle, way.log_text()[-4000:])
    return crowd


def lost_in(crowd: list[Any]) -> int:
    """Return how often clients missed shared memory that they had registered."""
    return sum(each.lost for each in crowd if isinstance(each, clients.SharedMemoryClient))


def pids_in(directory: Path) -> list[int]:
    """Return the pids of the servers in a named directory, first of the one that is meant."""
    clients = ServerSelector(str(directory)).connect_all()
    try:
        return [client.call("identity", timeout_s=60)["pid"] for client in clients]
    finally:
        for client in clients:
            client.close()
