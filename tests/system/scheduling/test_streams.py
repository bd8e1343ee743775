"""Models with a bound of streams: real clients of each protocol wait for a stream to end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.scraping import pending_requests
from tests.support.scripted import (
    DECOUPLED,
    extend_config,
    generate_stream,
    string_parameter,
)
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

KINDS = ["processes", "forks", "threads"]
BOUND = 2
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            *(
                Copy(
                    "scripted",
                    kind,
                    DECOUPLED
                    + string_parameter("MAX_STREAMS", str(BOUND))
                    + string_parameter("INSTANCES", kind),
                )
                for kind in KINDS
            ),
            Copy("scripted", "asking"),
        ]
    ),
]
#: A thread of the model answers, when it may; execute() has returned long before.
STREAM = """
    import os, threading, time
    path, sender = text_of(request), request.get_response_sender()
    def stream():
        sender.send(reply("begun"))
        open(path + ".begun", "w").close()
        while not os.path.exists(path):
            time.sleep(0.005)
        sender.send(reply("over"), FINAL)
    threading.Thread(target=stream).start()
"""


class Streams:
    """Streams that are named by files, and end when their file is there."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server, self._directory = server, directory
        self._threads = ThreadPoolExecutor(8)
        self._names: list[str] = []

    def path(self, name: str) -> str:
        self._names.append(name)
        return str(self._directory / name)

    def ask(self, model: str, name: str) -> Future[list[str]]:
        """Ask over HTTP; the events come once the stream has ended."""
        return self._threads.submit(generate_stream, self.server, model, STREAM, self.path(name))

    def end(self, name: str) -> None:
        (self._directory / name).touch()

    def names(self) -> set[str]:
        return {path.stem for path in self._directory.glob("*.begun")}

    def await_begun(self, *names: str) -> None:
        eventually(lambda: self.names() == set(names), 60, f"{names}, and not {self.names()}")

    def await_waiting(self, model: str, count: int) -> None:
        eventually(lambda: pending_requests(self.server, model) == count, 60, "they wait")

    def fill(self, model: str) -> list[Future[list[str]]]:
        """Open as many streams as the model takes."""
        asked = [self.ask(model, f"first{number}") for number in range(BOUND)]
        self.await_begun(*(f"first{number}" for number in range(BOUND)))
        return asked

    def close(self) -> None:
        for name in set(self._names):
            self.end(name)
        self._threads.shutdown()


@pytest.fixture
def streams(server: Server, tmp_path: Path) -> Iterator[Streams]:
    tmp_path.chmod(0o777)
    streams = Streams(server, tmp_path)
    yield streams
    streams.close()


OVER = ["begun", "over"]


@pytest.mark.parametrize("model", KINDS)
def test_requests_beyond_the_bound_wait_for_a_stream_to_end(streams: Streams, model: str) -> None:
    first = streams.fill(model)
    later = streams.ask(model, "later")
    streams.await_waiting(model, 1)
    assert {"first0", "first1"} == streams.names()

    streams.end("first1")

    assert OVER == first[1].result(60)
    streams.await_begun("first0", "first1", "later")
    for name in ("first0", "later"):
        streams.end(name)
    assert [OVER, OVER] == [first[0].result(60), later.result(60)]


@pytest.mark.parametrize("model", KINDS)
def test_those_that_wait_survive_the_death_of_the_instance(streams: Streams, model: str) -> None:
    first = streams.fill(model)
    later = streams.ask(model, "later")
    streams.await_waiting(model, 1)

    [pid] = [p["pid"] for p in processes(streams.server, model)]
    os.kill(pid, 9)

    assert ["begun", "begun"] == [one.result(60)[0] for one in first]
    assert all("is not healthy" in one.result(60)[1] for one in first)
    streams.end("later")
    assert OVER == later.result(60)


def processes(server: Server, model: str) -> list[dict[str, int]]:
    status = json.loads(ctl(server, "status", "-o", "json").stdout)
    return [p for p in status["processes"] if p["role"] == "stub" and p.get("model") == model]


def test_a_reload_ends_the_streams_and_those_that_wait_in_peace(streams: Streams) -> None:
    first = streams.fill("processes")
    waiting = streams.ask("processes", "waiting")
    streams.await_waiting("processes", 1)

    extend_config(streams.server, "processes", string_parameter("OTHER", "1"))
    assert not streams.server.control_model("load", "processes")
    later = streams.ask("processes", "later")
    streams.await_begun("first0", "first1", "later")
    for name in ("first0", "first1", "waiting", "later"):
        streams.end(name)

    assert [OVER] * 4 == [one.result(60) for one in [*first, waiting, later]]


def test_explain_says_that_requests_wait_for_a_stream_and_its_command_helps(
    streams: Streams,
) -> None:
    asked = streams.fill("processes")
    asked.append(streams.ask("processes", "later"))
    streams.await_waiting("processes", 1)

    findings = json.loads(ctl(streams.server, "explain", "processes", "-o", "json").stdout)

    text = "1 request waits for a stream to end, not for an instance: 2 are open, and "
    [finding] = [one for one in findings if one["text"].startswith(text)]
    assert finding["text"].endswith("MAX_STREAMS lets an instance have 2")
    assert "zmqtriton-ctl scale processes 2" in finding["commands"]
    assert not ctl(streams.server, "scale", "processes", "2").exit_code
    streams.await_begun("first0", "first1", "later")

    for name in ("first0", "first1", "later"):
        streams.end(name)
    assert [OVER] * 3 == [one.result(60) for one in asked]
    assert not ctl(streams.server, "scale", "processes", "1").exit_code
