"""Endpoints of add-ons, which the HTTP frontend knows by the names of their sockets alone."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from tests.frontends.http_api.fakes import FakeGateway
from zmqtriton_floor.errors import Unsupported
from zmqtriton_frontends.http_api.extension import EndpointParts, HttpExtension
from zmqtriton_frontends.http_api.server.endpoints import MAIN, all_endpoints

NAME = "sagemaker-socket"


def test_an_endpoint_is_made_by_the_add_on_that_declares_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[EndpointParts] = []

    async def application(scope: Any, receive: Any, send: Any) -> None: ...

    def make(parts: EndpointParts) -> Any:
        seen.append(parts)
        return application

    module = ModuleType("an_add_on")
    module.EXTENSION = HttpExtension(endpoints={NAME: make})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "an_add_on", module)
    gateway: Any = FakeGateway(http_addons=("an_add_on:EXTENSION",))
    main: Any = object()

    made = all_endpoints([MAIN, NAME], gateway, main, None)  # type: ignore[arg-type]

    assert {MAIN: main, NAME: application} == made
    assert [(gateway, main)] == [(parts.gateway, parts.application) for parts in seen]


def test_an_endpoint_that_no_add_on_serves_is_an_error() -> None:
    gateway: Any = FakeGateway(http_addons=())

    with pytest.raises(Unsupported, match="no add-on is installed that serves the Sagemaker"):
        all_endpoints([MAIN, NAME], gateway, None, None)  # type: ignore[arg-type]
