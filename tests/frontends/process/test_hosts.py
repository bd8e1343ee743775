"""Which names a client may use for the server."""

from __future__ import annotations

import pytest

from zmqtriton_frontends.process.hosts import AllowedHosts


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
