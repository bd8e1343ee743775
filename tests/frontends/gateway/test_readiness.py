"""Which models a frontend has asked, before it says that they or the server are ready."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.frontends.grpc_api.fake_gateway import FakeGateway, version_info
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_frontends.gateway.readiness import Readiness


@pytest.fixture
def gateway() -> FakeGateway:
    gateway = FakeGateway(
        version_info("m", 1, generation=4, is_asked=1),
        version_info("m", 2, generation=7, is_asked=1),
        version_info("n", generation=5),
        version_info(
            "left",
            generation=0,
            state="UNAVAILABLE",
            reason=Reason.of(Kind.UNLOADED, "unloaded"),
            is_asked=1,
        ),
    )
    gateway.control_results["is_ready"] = False
    return gateway


def _of_model(gateway: FakeGateway, *model: str) -> bool:
    return asyncio.run(Readiness(gateway).of_model(*model))


def _calls(*generations: int) -> list[tuple[str, dict[str, Any]]]:
    return [("is_ready", {"generations": list(generations)})]


@pytest.mark.row("F43")
def test_the_version_that_would_serve_is_asked(gateway: FakeGateway) -> None:
    assert not _of_model(gateway, "m")
    assert _calls(7) == gateway.calls

    assert not _of_model(gateway, "m", "1")
    assert _calls(4) == gateway.calls[1:]


def test_a_model_that_has_no_say_is_not_asked(gateway: FakeGateway) -> None:
    assert _of_model(gateway, "n")
    assert [] == gateway.calls


def test_what_cannot_execute_is_not_asked_either(gateway: FakeGateway) -> None:
    gateway.catalogue.update(version_info("m", 2, generation=7, ready_instances=0, is_asked=1))

    assert not _of_model(gateway, "m", "2")
    assert [] == gateway.calls


def test_an_unknown_model_is_an_error(gateway: FakeGateway) -> None:
    with pytest.raises(InvalidArgument, match="unknown model: 'x' is not found"):
        _of_model(gateway, "x")


@pytest.mark.row("F40")
def test_the_server_is_ready_when_every_model_that_serves_says_so(gateway: FakeGateway) -> None:
    assert not asyncio.run(Readiness(gateway).of_server())
    assert _calls(4, 7) == gateway.calls

    gateway.control_results["is_ready"] = True

    assert asyncio.run(Readiness(gateway).of_server())


@pytest.mark.row("F41")
def test_without_strict_readiness_no_model_is_asked_for_the_server(gateway: FakeGateway) -> None:
    gateway.catalogue.strict_readiness = False

    assert asyncio.run(Readiness(gateway).of_server())
    assert [] == gateway.calls


def test_nothing_is_ready_while_the_server_stops(gateway: FakeGateway) -> None:
    gateway.is_stopping = True

    assert not _of_model(gateway, "n")
    assert not asyncio.run(Readiness(gateway).of_server())
    assert [] == gateway.calls


def _why_not(gateway: FakeGateway) -> str:
    return asyncio.run(Readiness(gateway).why_not_of_server())


@pytest.fixture
def plain() -> FakeGateway:
    """Four versions serve, and one was unloaded."""
    gateway = FakeGateway(
        *(version_info(name, generation=number) for number, name in enumerate("abcd", 1)),
        version_info(
            "left", generation=0, state="UNAVAILABLE", reason=Reason.of(Kind.UNLOADED, "unloaded")
        ),
    )
    gateway.catalogue.can_name_models = True
    return gateway


def test_the_reason_names_the_versions_that_keep_the_server_from_being_ready(
    plain: FakeGateway,
) -> None:
    assert "" == _why_not(plain)

    died = Reason.of(Kind.OTHER, "no feature store (given up after 6 deaths)\nmore")
    plain.catalogue.update(version_info("b", generation=0, state="UNAVAILABLE", reason=died))
    plain.catalogue.update(version_info("c", generation=3, ready_instances=0))

    assert (
        "2 of 4 model versions that should serve are not ready: b version 1 (no feature store "
        "(given up after 6 deaths)), c version 1 (no instance can execute)"
    ) == _why_not(plain)

    plain.catalogue.can_name_models = False
    assert "2 of 4 model versions that should serve are not ready" == _why_not(plain)


def test_a_few_of_many_are_named(plain: FakeGateway) -> None:
    for number, name in enumerate("abcd", 1):
        plain.catalogue.update(version_info(name, generation=number, state="LOADING"))

    assert _why_not(plain).endswith("c version 1 (LOADING), and 1 more")


def test_a_drain_and_a_missing_broker_are_reasons_too(plain: FakeGateway) -> None:
    plain.catalogue.is_draining = True
    assert "the server drains" == _why_not(plain)
    plain.catalogue.is_draining, plain.catalogue.has_broker = False, False
    assert "the server replaces its broker" == _why_not(plain)


def test_a_model_s_own_answer_is_a_reason(gateway: FakeGateway) -> None:
    assert "a model says by its is_ready that it is not ready" == _why_not(gateway)
