"""Clients that take what they can get are limited or ended, and others are served."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial

import pytest

from tests.support.journal import read_journal
from tests.support.process_memory import pss_mib
from tests.support.raw_http import raw_request, send_raw
from tests.support.scraping import sum_series
from tests.support.server import Copy, Server
from tests.support.waiting import eventually
from tests.system.attacks.connections import INFER, connect, is_served

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            "identity_fp32",
            Copy(
                "journal",
                edit=(
                    "max_batch_size: 8\n",
                    "max_batch_size: 1\n"
                    "dynamic_batching { default_queue_policy { max_queue_size: 10 } }\n",
                ),
            ),
            "tokens",
        ],
    ),
]

STREAMS = 20


@pytest.fixture
def server(server: Server) -> Iterator[Server]:
    """After each attack others are served, too."""
    yield server
    assert is_served(server)


def test_streams_that_nobody_reads_stop_their_model_and_fill_nothing(server: Server) -> None:
    body = json.dumps({"COUNT": 2_000_000_000}).encode()
    data = raw_request("POST", "/v2/models/tokens/generate_stream", body)
    before = pss_mib(server)

    with ExitStack() as stack:
        for _ in range(STREAMS):
            connect(server, stack, data, 4096)
        executing = partial(sum_series, server, "zmqtriton_executing_count")
        eventually(lambda: executing() >= STREAMS, 60, "the model has all of them")
        assert is_served(server)
        time.sleep(1)
        assert pss_mib(server) < before + 128

    eventually(
        lambda: [r.event for r in read_journal(server.journal)].count("cancelled") == STREAMS,
        60,
        "the model knows that all have gone",
    )


def test_bad_requests_are_not_logged(server: Server) -> None:
    before = server.log_text().count("\n")
    wrong = [
        raw_request("POST", INFER, b"{"),
        raw_request("GET", "/nowhere"),
        raw_request("DELETE", "/v2"),
        raw_request("POST", "/v2/models/none/infer", b"{}"),
        raw_request("POST", INFER, b'{"inputs":[]}'),
    ]

    last = raw_request("GET", "/nowhere", Connection="close")
    for _ in range(2):
        assert 501 == len(send_raw(server.http_port, b"".join([*wrong * 100, last])).statuses)
    for _ in range(50):
        send_raw(server.http_port, b"GET / nonsense\r\n\r\n")

    # a busy machine may have lines of its own in it
    assert server.log_text().count("\n") < before + 20


@pytest.mark.row("C34")
def test_a_client_that_sends_on_without_reading_fills_nothing(server: Server) -> None:
    many = raw_request("GET", "/v2/models/identity_fp32/config") * 1000
    before = pss_mib(server)
    with ExitStack() as stack:
        connection = connect(server, stack, b"")
        connection.settimeout(2)
        with suppress(TimeoutError):  # the server reads no more of it
            for _ in range(100):
                connection.sendall(many)

        assert is_served(server)
        assert pss_mib(server) < before + 64
