"""Models that take more than they may, and one beside them that does not notice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tests.support.scripted import add_model, generate, string_parameter
from tests.support.server import Server

pytestmark = pytest.mark.system

MIB = 1 << 20
LARGE = 'return [reply("x" * int(text_of(request)))]'
SMALL = 'return [reply("small")]'


def prepare(server: Server) -> None:
    add_model(server, "scripted", "beside")
    add_model(server, "scripted", "large", string_parameter("max_segment_bytes", "3M"))
    pace = string_parameter("max_executions_per_second", "2")
    add_model(server, "scripted", "fast", pace + string_parameter("max_requests", "3"))


@pytest.fixture(autouse=True)
def beside(server: Server) -> Iterator[None]:
    """Whatever the others do, this model answers."""
    ended = Event()

    def ask() -> list[str]:
        answers = []
        while not ended.is_set():
            answers.append(generate(server, "beside", SMALL))
        return answers

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        try:
            yield
        finally:
            ended.set()
        assert {"small"} == set(asking.result(60))


@pytest.mark.row("L22")
def test_tensors_have_so_much_shared_memory_and_no_more(server: Server) -> None:
    [before] = server.stub_pids("large")

    refused = generate(server, "large", LARGE, str(4 * MIB))

    assert "Failed to increase the shared memory pool size to " in refused
    assert f"Model 'large' may have {3 * MIB} bytes of shared memory (max_segment_bytes)" in refused
    for size in (2 * MIB, 100_000, 2 * MIB, 400_000):
        assert size == len(generate(server, "large", LARGE, str(size)))
    assert [before] == server.stub_pids("large")


@pytest.mark.row("L22")
def test_executions_keep_their_pace(server: Server) -> None:
    begun_s = time.monotonic()

    answers = [generate(server, "fast", SMALL) for _ in range(5)]

    assert ["small"] * 5 == answers
    assert time.monotonic() - begun_s > 4 / 2 * 0.9


@pytest.mark.row("L22")
def test_who_asks_too_often_hears_of_the_limit(server: Server) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: generate(server, "fast", SMALL), range(8)))

    limit = "the model may begin 2 executions per second (max_executions_per_second)"
    assert {"small", f"Exceeds maximum queue size: {limit}"} == set(answers)
