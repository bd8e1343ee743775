"""Functions that a program calls by `zmqtriton.connect()`, and what it is told where it cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import zmqtriton
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_floor.errors import InvalidArgument

pytestmark = pytest.mark.system

FUNCTIONS = """
from typing import NamedTuple
from zmqtriton import model

class Words(NamedTuple):
    first: str
    count: int

@model
def several(text: str, times: int = 1) -> Words:
    if times < 0:
        raise ValueError(times)
    return Words(text, len(text.split()) * times)

@model
def load(text: str) -> str:
    return text.upper()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--model-control-mode=explicit", "--load-model=*")
    directory = tmp_path_factory.mktemp("calling")
    server = Server(directory / "server", options=options, frontends=())
    for name in ("several", "load"):
        server.write_model(name, "", FUNCTIONS)
    with server:
        yield server


@pytest.fixture
def connection(server: Server) -> Iterator[Any]:
    with zmqtriton.connect(str(server.pid)) as connection:
        yield connection


def test_a_tuple_is_a_tuple_with_names(connection: Any) -> None:
    answer = connection.several("a b", times=2)

    assert ("a b", 4) == answer
    assert ("a b", 4) == (answer.first, answer.count)


def test_every_function_can_be_called_by_its_name(connection: Any) -> None:
    assert "A" == connection.call("load", "a")
    assert 2 == connection.call("several", text="a", times=2).count


def test_a_wrong_name_is_an_error_and_nothing_hangs(connection: Any) -> None:
    with pytest.raises(TypeError, match="name of a function must be a string, got an integer"):
        connection.call(1)
    with pytest.raises(InvalidArgument, match="name of a model must be a string, got an integer"):
        connection.load(1)
    for verb in (1, "a" * 2000):
        with pytest.raises(InvalidArgument, match="the call cannot be sent: Call: verb is"):
            connection.control(verb)


def test_the_error_says_which_server_was_asked_and_what_it_has(
    server: Server, connection: Any
) -> None:
    text = rf"the server '.*' \(pid {server.pid}, .*{server.http_port}.*\) has no function 'shout'"

    for call in (lambda: connection.shout("a"), lambda: connection.call("shout", "a")):
        with pytest.raises(AttributeError, match=text) as error:
            call()
        assert re.search(r"it has: load, several$", str(error.value))
    assert not hasattr(connection, "shout")
    connection.close()
    assert not hasattr(connection, "shout")


def test_the_log_has_the_functions_own_frames_in_lines(server: Server) -> None:
    [file] = server.repository.glob("several/1/model.py")

    assert 500 == server.request_json("/several", {"text": "a", "times": -1})[0]

    def lines() -> list[str]:
        log, is_there, _ = server.log_text().partition("ValueError: -1")
        return log.rpartition(" failed: ")[2].splitlines() if is_there else []

    eventually(lines, 30, "the traceback")
    first, place, code, *others = lines()
    assert 'Traceback (most recent call last):"' == first
    assert [f'      File "{file}", line', ", in several"] == re.split(r" \d+(?=,)", place)
    assert "raise ValueError(times)" == code.strip()
    assert [] == [line for line in others if "File" in line]
