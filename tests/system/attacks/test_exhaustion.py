"""Clients that take what they can get are limited or ended, and others are served."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.journal import read_journal
from tests.support.process_memory import pss_mib
from tests.support.raw_http import raw_request, send_raw
from tests.support.scraping import sum_series
from tests.support.server import Copy, Server
from tests.support.waiting import eventually
from tests.system.attacks.connections import INFER, connect, is_served
from zmqtriton.control_client import ServerSelector
from zmqtriton_floor import wire

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
#: Lines that a lifeline has room for.
LINES = 150


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


def test_who_logs_much_lets_others_be_heard_in_between(server: Server) -> None:
    selector, supervisor = ServerSelector("", f"pid:{server.pid}"), psutil.Process(server.pid)
    with selector.connect(to_change=True) as first, selector.connect(to_change=True) as other:
        assert first.identity == other.identity
        supervisor.suspend()  # its next turn finds both
        eventually(lambda: supervisor.status() == psutil.STATUS_STOPPED, 60, "it stands")
        for number in range(LINES):
            first.line.send(wire.LogLine("I", "crowd.py", 1, f"line {number} of many"))
        other.line.send(wire.LogLine("I", "other.py", 1, "a line of another"))
        supervisor.resume()
        last = f"line {LINES - 1} of many"
        eventually(lambda: last in server.log_text(), 60, "all lines are logged")

    lines = [line for line in server.log_text().splitlines() if " of many" in line]
    before, _, _ = server.log_text().partition("a line of another")
    assert [f"line {n} of many" in line for n, line in enumerate(lines)] == [True] * LINES
    assert before.count(" of many") < LINES


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


# ------------------------------------------------------------------------- templates without an end
# A server that is told to end while a chat template has no end.


ENDLESS = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{{ 'a' * 100000 }}"
    "{% endfor %}{% endfor %}"
)


def renders(server: Server) -> bool:
    """Return whether a process of templates is busy."""
    for pid in server.pids()["http"]:
        for child in psutil.Process(pid).children(recursive=True):
            if sum(child.cpu_times()[:2]) > 0.5:
                return True
    return False


@pytest.mark.long(
    "extras/openai/templates/test_children.py::test_a_template_without_an_end_is_ended_and_keeps_no_other_model_waiting",
    "extras/openai/templates/test_children.py::test_who_leaves_ends_a_template_that_grows",
)
def test_a_template_without_an_end_keeps_no_server_from_ending(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", options=["--allow-openai"], frontends=())
    (server.add_model("parrot", "endless") / "chat_template.jinja").write_text(ENDLESS)
    body = json.dumps({"model": "endless", "messages": [{"role": "user", "content": "x"}]})
    request = raw_request("POST", "/v1/chat/completions", body.encode())

    with server, ExitStack() as stack:
        clients = [connect(server, stack, request)]

        def is_rendered() -> bool:
            if select.select(clients[-1:], [], [], 0)[0]:
                # it was ended by its limit before a busy machine looked
                clients.append(connect(server, stack, request))
            return renders(server)

        eventually(is_rendered, 30, "the template is rendered")

        assert 0 == server.stop(30)
        assert clients[-1].recv(1 << 16).startswith(b"HTTP/1.1 500 ")
