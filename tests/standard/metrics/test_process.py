"""The real process between a supervisor and a broker that the test plays."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frontends.fake_server import FakeServer
from tests.standard.metrics.test_exposition import stat
from zmqtriton_floor import wire

MODULE = "zmqtriton_standard.metrics"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    with FakeServer(tmp_path, MODULE) as running:
        running.open("metrics")
        yield running


def scrape(server: FakeServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as page:
        text: str = page.read().decode()
    return text


@pytest.mark.system
def test_a_scrape_asks_the_broker(server: FakeServer) -> None:
    server.statistics = [stat("add_sub")]
    text = scrape(server)

    expected = {
        'nv_inference_count{model="add_sub",version="1"} 20',
        'zmqtriton_malformed_messages_total{place="broker"} 3',
        'zmqtriton_malformed_messages_total{place="supervisor"} 2',
        'zmqtriton_broker_bytes_total{direction="in"} 700',
        'zmqtriton_broker_bytes_total{direction="out"} 800',
        "zmqtriton_leased_blocks 4",
        "zmqtriton_unanswered_requests 5",
        "zmqtriton_refused_requests_total 6",
    }
    assert expected <= {*text.splitlines()}
    [opened] = server.opened
    assert opened.services == [wire.ServiceAddress("Metrics Service", f"127.0.0.1:{server.port}")]


@pytest.mark.system
def test_it_can_be_read_until_it_is_told_to_stop(server: FakeServer) -> None:
    scrape(server)

    server.send_stop()

    # A connection that is left open would keep it for longer.
    assert server.process.wait(30.0) == 0


@pytest.mark.system
@pytest.mark.parametrize("is_open", [False, True])
def test_sigterm_ends_it(tmp_path: Path, is_open: bool) -> None:
    with FakeServer(tmp_path, MODULE) as server:
        if is_open:
            server.open("metrics")
        server.process.send_signal(signal.SIGTERM)

        assert server.process.wait(30.0) in ((0,) if is_open else (0, -signal.SIGTERM))
