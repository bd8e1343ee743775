"""Which names a client may use for the server."""

from __future__ import annotations

import pytest

from zmqtriton_frontends.process.hosts import AllowedHosts, host_refusal


@pytest.mark.parametrize("listening", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
@pytest.mark.parametrize(
    ("host", "is_admitted"),
    [
        *[(host, True) for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:1")],
        *[(host, True) for host in ("10.0.0.7", "desk.example:80")],
        *[(host, False) for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil")],
        *[(host, False) for host in ("", "a b", "localhost:8000:1", "[::1", "x@localhost")],
    ],
)
def test_a_server_for_this_machine_answers_to_its_own_names(
    listening: str, host: str, is_admitted: bool
) -> None:
    assert AllowedHosts(listening, ["desk.example"]).admits(host) is is_admitted


def test_any_name_will_do_where_others_may_connect_and_none_is_given() -> None:
    assert AllowedHosts("0.0.0.0", []).admits("evil.example")
    assert not AllowedHosts("0.0.0.0", ["desk.example"]).admits("evil.example")


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("Models.example:8000", "start the server with --http-allowed-host=models.example, or "),
        ("a b", "Host 'a b' is not allowed: it is no valid name"),
        ("a\x1b[31m\xe9", "Host 'a?[31m?' is not allowed: it is no valid name"),
    ],
)
def test_a_refusal_names_the_option(host: str, text: str) -> None:
    assert text in host_refusal(host)


def test_a_refusal_gives_back_no_more_than_a_name() -> None:
    assert host_refusal("Models.example:80").startswith("Host 'models.example' is not allowed: ")
    for host in ("a" * 10_000, " " * 10_000):
        assert len(host_refusal(host)) < 320
