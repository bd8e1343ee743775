"""The add-on of tests/repo/test_laws.py on a real server: its laws, seen from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.repo.test_laws import write_room
from tests.support.server import Server

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("room")
    write_room(place)
    about = place / "echo-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echo\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[zmqtriton.addons]\necho = echo\n")
    roots = os.pathsep.join((str(place), os.environ.get("PYTHONPATH", "")))
    with Server(place / "s", environment={"PYTHONPATH": roots}, frontends=()) as server:
        yield server


def test_an_honest_room_serves(server: Server) -> None:
    answer = server.exchange("/echo", b'{"times":2}')

    assert (200, b'{"times":2}{"times":2}') == (answer.status, answer.body)


@pytest.mark.parametrize(
    "body",
    [
        b'["sesame"]',
        b'"sesame"',
        b'{"times":"sesame"}',
        b'{"times":NaN}',
        b'{"times":1e400}',
        b'{"times":2.5}',
        b'{"times":1001}',
        b'{"times":"sesame"',
        b"[" * 5000 + b"]" * 5000,
    ],
)
def test_it_refuses_what_is_wrong_and_shows_no_value(server: Server, body: bytes) -> None:
    answer = server.exchange("/echo", body)

    assert 400 == answer.status
    assert len(answer.body) < 4096
    assert b"sesame" not in answer.body
