"""The choice of a server, in front of a command or behind it."""

from __future__ import annotations

import socket

import click
import pytest

from zmqtriton.ctl.main import cli
from zmqtriton.ctl.selecting import move_to_front, parse_server


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("status m --server alpha --json", "--server alpha status m --json"),
        ("logs --server=8000 -f", "--server=8000 logs -f"),
        ("--server a models --runtime-directory /d", "--server a --runtime-directory /d models"),
        ("infer m -- --server=x", "infer m -- --server=x"),
        ("models --server", "--server models"),
    ],
)
def test_the_server_may_stand_behind_the_command(words: str, expected: str) -> None:
    assert expected.split() == move_to_front(words.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alpha", "alpha"),
        ("8000", "8000"),
        (":8000", "8000"),
        ("localhost:8000", "8000"),
        ("http://127.0.0.1:8000/", "8000"),
        ("http://[::1]:8001", "8001"),
        (f"http://{socket.gethostname()}:8002/v2", "8002"),
    ],
)
def test_a_url_names_a_server_by_its_port(text: str, expected: str) -> None:
    assert expected == parse_server(click.Context(cli), cli.params[0], text)


@pytest.mark.parametrize("text", ["http://elsewhere:8000", "http://localhost", "localhost:x"])
def test_a_url_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_server(click.Context(cli), cli.params[0], text)
