"""Functions that a program calls by `zmqtriton.connect()`, and what it is told where it cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zmqtriton
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_floor.errors import InvalidArgument

pytestmark = pytest.mark.system

FUNCTIONS = """
from pathlib import Path
from typing import NamedTuple
from zmqtriton import File, Image, model

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

@model
def names(one: Path, files: list[File], paths: list[Path], images: list[Image]) -> list[str]:
    rows = [[each.name, each.content_type, each.data.decode()] for each in [*files, *images]]
    return [one.name, *[each.name for each in paths], *map(str, rows)]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--model-control-mode=explicit", "--load-model=*")
    directory = tmp_path_factory.mktemp("calling")
    server = Server(directory / "server", options=options, frontends=())
    for name in ("several", "load", "names"):
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


def test_paths_are_files_with_their_names_in_lists_also(
    server: Server, connection: Any, tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("a.txt", "b.csv", "c.gif")]
    for path in paths:
        path.write_text(f"GIF8 {path.name}")
    text, table, picture = paths
    content_type = "multipart/form-data; boundary=b"
    parts = [
        ("one", text, "text/plain"),
        ("files", text, "text/plain"),
        ("files", table, "text/csv"),
        ("paths", table, "text/csv"),
        ("images", picture, ""),
    ]
    form = b"".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="{path.name}"\r\n'
        f"Content-Type: {kind}\r\n\r\n{path.read_text()}\r\n".encode()
        for name, path, kind in parts
    )

    called = connection.names(text, [str(text), table], paths=[table], images=[picture])
    sent = server.exchange("/names", form + b"--b--", {"Content-Type": content_type})

    plain = "application/octet-stream"
    last = str(["c.gif", "image/gif", "GIF8 c.gif"])
    assert ["a.txt", "b.csv", str(["a.txt", plain, "GIF8 a.txt"]), last] == [*called[:3], called[4]]
    assert str(["b.csv", "text/csv", "GIF8 b.csv"]) == sent.document["output"][3]
    assert ["a.txt", "b.csv", last] == [*sent.document["output"][:2], sent.document["output"][4]]


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
        assert re.search(r"it has: load, names, several$", str(error.value))
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
