"""Many streams of one model on a real server: who is in which step, and how each one ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.scraping import sum_series
from tests.support.scripted import string_parameter
from tests.support.server import Server, is_open
from tests.support.waiting import eventually
from zmqtriton_extras.functions.tests.system.many_streams import (
    Client,
    Clients,
    Journal,
    executions,
    kill,
    many_clients,
)

pytestmark = pytest.mark.system

KINDS = ("processes", "forks", "threads")
MANY = 64


class World:
    def __init__(self, directory: Path) -> None:
        options = ("--model-control-mode=explicit", "--load-model=*", "--allow-openai")
        self.server = Server(directory / "server", options=options, frontends=("grpc", "metrics"))
        self.journals = {kind: Journal(directory / kind) for kind in KINDS}
        directory.chmod(0o777)
        for kind, journal in self.journals.items():
            config = string_parameter("INSTANCES", kind)
            self.server.write_model(kind, config, journal.source().replace("Count", kind.title()))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("streams"))
    with world.server:
        yield world


@pytest.fixture
def journal(world: World) -> Journal:
    return world.journals["processes"]


@pytest.fixture
def clients(world: World, journal: Journal) -> Iterator[Clients]:
    with many_clients(world.server, journal) as clients:
        yield clients


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def test_a_newcomer_is_in_the_next_step_of_the_others(
    world: World, journal: Journal, clients: Clients
) -> None:
    asked = clients.ask_many("processes", MANY - 1)
    eventually(lambda: {*names(MANY - 1)} in map(set, journal.steps().values()), 60, "all of them")
    step, count = journal.hold(*names(MANY - 1)), executions(world.server, "processes")

    newcomer = clients.ask("processes", "newcomer", pieces=3)
    eventually(lambda: executions(world.server, "processes") > count, 60, "it is in the instance")
    journal.let_go()

    texts = newcomer.result(120)
    assert [f"newcomer {step + more} old" for more in (1, 2, 3)] == texts
    journal.stop()
    for name, answer in asked.items():
        numbers = [int(text.split()[1]) for text in answer.result(120)]
        assert list(range(numbers[0], numbers[-1] + 1)) == numbers, name


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_leaves_is_in_no_further_step(world: World, kind: str) -> None:
    journal = world.journals[kind]
    with many_clients(world.server, journal) as clients:
        asked = clients.ask_many(kind, 4)
        leaving = Client(world.server, kind, "leaving")
        next(leaving.read())

        leaving.leave()
        eventually(lambda: journal.has(left="leaving"), 60, "it has left")
        step = max(journal.steps())
        eventually(lambda: len(journal.steps(step)) > 5, 60, "other steps")

        journal.stop()
        rows = journal.rows()
        place = next(n for n, row in enumerate(rows) if row.get("left") == "leaving")
        assert not any("leaving" in row.get("names", ()) for row in rows[place:])
        for answer in asked.values():
            numbers = [int(text.split()[1]) for text in answer.result(120)]
            assert list(range(numbers[0], numbers[-1] + 1)) == numbers


#: A step of two streams lasts until the second is cancelled. Pieces have the number of the step.
PLAIN = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    number = 0

    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "N", "data_type": "TYPE_INT32", "dims": [1]})
        for name in ("STEP", "SIZE"):
            config.add_output({"name": name, "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def admit(self, request):
        return request

    def step(self, states):
        self.number += 1
        if len(states) == 2:
            open(PLACE, "w").close()
        while len(states) == 2 and not states[1].is_cancelled():
            pass
        values = {"STEP": self.number, "SIZE": len(states)}
        tensors = [pb_utils.Tensor(k, np.array([v], np.int32)) for k, v in values.items()]
        return [pb_utils.InferenceResponse(tensors) for _ in states]
"""


def test_after_a_cancellation_in_a_step_no_other_step_has_the_stream(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    server = Server(tmp_path / "server", frontends=())
    source = PLAIN.replace("PLACE", repr(str(tmp_path / "both")))
    server.write_model("plain", 'backend: "streams"', source)

    def ask() -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=240)
        connection.request("POST", "/v2/models/plain/generate_stream", b'{"N": 1}')
        return connection

    with server, closing(ask()) as first:
        answer = first.getresponse()
        answer.readline()
        second = ask()
        eventually((tmp_path / "both").exists, 60, "both are in a step")
        second.close()
        sizes: dict[int, int] = {}
        while 2 not in sizes.values() or max(sizes.values()) == [*sizes.values()][-1]:
            line = answer.readline()
            if line.startswith(b"data: "):
                row = json.loads(line[6:])
                sizes[row["STEP"]] = row["SIZE"]
        answer.close()

    [both] = [step for step, size in sizes.items() if size == 2]
    assert 1 == sizes[both + 1]


def test_a_reader_that_stops_is_left_out_of_steps_and_holds_none_up(
    world: World, journal: Journal, clients: Clients
) -> None:
    slow = Client(world.server, "processes", "slow", size=4000)
    asked = clients.ask_many("processes", MANY - 1)

    def is_left_out() -> bool:
        last = [*journal.steps().values()][-20:]
        return len(last) == 20 and all("slow" not in each for each in last)

    eventually(is_left_out, 120, "steps without it")
    assert 1 == sum_series(world.server, "streams", state="behind", model="processes")
    step = max(journal.steps())
    reader = slow.read()
    read = [next(reader)]
    while int(read[-1].split()[1]) <= step:
        read.append(next(reader))  # it is in steps again
    journal.stop()
    read += list(reader)

    had = [number for number, each in journal.steps().items() if "slow" in each]
    assert had == [int(text.split()[1]) for text in read], "it has lost nothing"
    for answer in asked.values():
        numbers = [int(text.split()[1]) for text in answer.result(120)]
        assert list(range(numbers[0], numbers[-1] + 1)) == numbers
    slow.leave()


def test_a_stream_that_fails_leaves_the_others_alone(
    world: World, journal: Journal, clients: Clients
) -> None:
    other = clients.ask("processes", "other")
    journal.hold("other")
    failing = clients.ask("processes", "fails")
    journal.let_go()

    assert ["this stream alone"] == failing.result(120)
    journal.stop()
    assert "other" == other.result(120)[-1].split()[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_in_the_middle_of_a_step_ends_each_stream_with_an_error(
    world: World, kind: str
) -> None:
    journal = world.journals[kind]
    with many_clients(world.server, journal) as clients:
        asked = clients.ask_many(kind, MANY)
        eventually(lambda: MANY in map(len, journal.steps().values()), 60, "all of them")
        journal.hold(*names(MANY))
        [pid] = {row["pid"] for row in journal.rows()}

        kill(pid)

        for name, answer in asked.items():
            *texts, end = answer.result(240)
            assert "is not healthy" in end
            assert all(text.split()[0] == name for text in texts)
        journal.clear()
        assert ["again 1 old"] == clients.ask(kind, "again", pieces=1).result(240)


def test_a_reload_lets_streams_end_and_has_new_ones_with_the_new_code(
    world: World, journal: Journal, clients: Clients
) -> None:
    asked = clients.ask_many("processes", 8, pieces=200)
    journal.hold(*names(8))
    file = world.server.repository / "processes" / "1" / "model.py"
    file.write_text(file.read_text().replace('WORD = "old"', 'WORD = "new"'))
    try:
        assert not world.server.control_model("load", "processes")
        later = clients.ask("processes", "later", pieces=2)
        journal.let_go()

        assert ["new", "new"] == [text.split()[2] for text in later.result(120)]
        for answer in asked.values():
            assert 200 * ["old"] == [text.split()[2] for text in answer.result(120)]
    finally:
        file.write_text(file.read_text().replace('WORD = "new"', 'WORD = "old"'))
        assert not world.server.control_model("load", "processes")


def test_a_server_that_stops_lets_streams_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    tmp_path.chmod(0o777)
    server = Server(tmp_path / "server", frontends=())
    server.write_model("count", "", journal.source())
    with server, many_clients(server, journal) as clients:
        asked = clients.ask_many("count", 8, pieces=100)
        journal.hold(*names(8))
        os.kill(server.pid, signal.SIGTERM)
        eventually(lambda: not is_open(server.http_port), 60, "it is stopping")
        journal.let_go()
        assert [100] * 8 == [len(answer.result(120)) for answer in asked.values()]
