"""Credentials go to the server that they are for, whatever that server answers."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.support.model_sources import Asked, Origin, Said
from zmqtriton_extras.storage import web
from zmqtriton_extras.storage.places import ArtifactPath, parse_url
from zmqtriton_extras.storage.registry import RegistryClient
from zmqtriton_extras.storage.web import Refused, Unreachable, ask


class Redirecting(Origin):
    to = ""

    def answer(self, request: Asked) -> Said:
        is_begin = request.path == "/begin"
        return Said(302, headers={"Location": self.to}) if is_begin else Said(body=b"here")


def test_a_login_is_not_sent_behind_a_redirect() -> None:
    with Redirecting() as server:
        server.to = "/end"

        with ask(f"http://{server.address}/begin", {}, authorization="Basic secret") as answer:
            assert b"here" == answer.read()

        begin, end = server.requests
        assert "Basic secret" == begin.headers["authorization"]
        assert "authorization" not in end.headers


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_nothing_but_the_web_is_asked(target: str) -> None:
    with pytest.raises(Refused, match="must begin with http"):
        ask(target, {})
    with Redirecting() as server:
        server.to = target
        with pytest.raises((Refused, Unreachable)):
            ask(f"http://{server.address}/begin", {})


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "2852039166"]
)
def test_a_redirect_to_a_link_local_address_is_not_followed(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers of credentials are there, which trust each process of the machine."""
    connect = socket.create_connection

    def connect_here(address: Any, *more: Any, **named: Any) -> socket.socket:
        # the test must not reach a real one where the redirect is followed
        assert "127.0.0.1" == address[0]
        return connect(address, *more, **named)

    monkeypatch.setattr(socket, "create_connection", connect_here)
    with Redirecting() as server:
        server.to = f"http://{host}/end"
        with pytest.raises(Refused, match="which only this machine can reach"):
            ask(f"http://{server.address}/begin", {})


def test_a_registry_with_tls_gets_no_login_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_FIRST_PAUSE_S", 0.0)
    place = parse_url("oci://registry.example/m")
    assert isinstance(place, ArtifactPath)

    with pytest.raises(Refused, match=r"its login at http://other/token is not encrypted"):
        RegistryClient(place).token("http://other/token", {}, "Basic secret")
