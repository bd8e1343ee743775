"""Requests under way over HTTP: what is kept of them until their answers has room."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.support.raw_http import connect_narrow, raw_request
from tests.support.scenarios import scenario

KIB = 1 << 10
LIMIT, CLIENTS = 4096 * KIB, 60


def _ask(kib: int) -> bytes:
    tensor = {"name": "INPUT0", "shape": [kib << 7], "datatype": "FP32", "data": [0] * (kib << 7)}
    body = json.dumps({"inputs": [tensor]}, separators=(",", ":"))
    return raw_request("POST", "/v2/models/identity/infer", body.ljust(kib << 10).encode())


@pytest.mark.parametrize(("kib", "has_room"), [(8, False), (9, True), (100, True)])
@scenario(run_scenario, ledger_bytes=LIMIT)
async def test_whole_requests_have_room_until_they_are_answered(
    harness: HttpHarness, /, kib: int, has_room: bool
) -> None:
    gateway, requests = harness.gateway, harness.connections.ledger.requests
    gateway.is_holding = True
    clients = [connect_narrow(harness.connections.address[1]) for _ in range(CLIENTS)]
    try:
        for client in clients:
            await asyncio.to_thread(client.sendall, _ask(kib))
        limit = LIMIT // (kib << 10)
        while len(gateway.requests) + requests.refused < CLIENTS:
            await asyncio.sleep(0.01)

        assert min(CLIENTS, limit) >= len(gateway.requests)
        assert requests.held == (len(gateway.requests) * (kib << 10) if has_room else 0)
        for number in list(gateway.held_replies):
            gateway.release_held(number)
        answers = [await asyncio.to_thread(client.recv, 12) for client in clients]
        assert {b"HTTP/1.1 200"} >= set(answers) - {b"HTTP/1.1 503"}
        assert CLIENTS - requests.refused == answers.count(b"HTTP/1.1 200")
        assert not requests.held
    finally:
        for client in clients:
            client.close()
