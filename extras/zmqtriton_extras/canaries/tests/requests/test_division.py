"""Which version a client's request gets while a canary of its model is tried."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.frontends.fake_gateway import FakeGateway
from zmqtriton import addons
from zmqtriton.options.result import Options
from zmqtriton_floor.routing import ALL
from zmqtriton_floor.wire import RequestBody, TrafficSplit, VersionInfo
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions
from zmqtriton_frontends.inference.catalogue import Catalogue

NO_INPUTS = RequestBody("", {}, [], [])
OVER = TrafficSplit("m", 0, 0, 0)


def news(version: int, state: str = "READY") -> VersionInfo:
    generation = version if state == "READY" else 0
    config = json.dumps({"name": "m"}) if generation else ""
    return VersionInfo(generation, "m", version, state, None, generation and 1, config, b"")


def split(weight: int, header: str = "", value: str = "", shadow: int = 0) -> TrafficSplit:
    return TrafficSplit("m", 1, 2, weight, header, value, shadow, "0.5")


@pytest.fixture
def catalogue() -> Catalogue:
    filled = Catalogue()
    filled.apply(split(0))
    for version in (1, 2):
        filled.apply(news(version))
    return filled


@cache
def entrance_of(catalogue: Catalogue) -> Entrance:
    gateway = FakeGateway([], {"offers": addons.offers_in_use(Options().value)})
    gateway.catalogue = catalogue
    return Entrance(gateway, "RECV", "SEND")


def ask(
    catalogue: Catalogue, version: str = "", correlation: int = 0, name: str = "", **headers: str
) -> CheckedRequest:
    content = Content(RequestBody(name, {}, [], []), SchedulingOptions(correlation=correlation))
    by_name = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    request = Ask(("m", version), lambda _: content, by_name.get)
    return entrance_of(catalogue).enter(request)


def chosen(catalogue: Catalogue, version: str = "", correlation: int = 0, **headers: str) -> int:
    return ask(catalogue, version, correlation, **headers).model.version


@pytest.mark.row("L16")
def test_requests_without_a_version_are_divided_and_others_get_theirs(
    catalogue: Catalogue,
) -> None:
    assert (chosen(catalogue), chosen(catalogue, "1"), chosen(catalogue, "2")) == (1, 1, 2)

    catalogue.apply(split(ALL))
    assert (chosen(catalogue), chosen(catalogue, "1"), chosen(catalogue, "2")) == (2, 1, 2)

    catalogue.apply(split(ALL // 2))
    assert {1, 2} == {chosen(catalogue) for _ in range(100)}
    assert {1} == {chosen(catalogue, "1") for _ in range(100)}

    catalogue.apply(OVER)
    assert chosen(catalogue) == 2
    assert catalogue.find("m").trial is None


def test_a_client_that_names_itself_keeps_its_version(catalogue: Catalogue) -> None:
    divided = split(ALL // 2)
    catalogue.apply(divided._replace(sticky="x-user"))
    users = [f"user{number}" for number in range(100)]

    first = [chosen(catalogue, x_user=user) for user in users]
    assert {1, 2} == set(first)
    assert first == [chosen(catalogue, x_user=user) for user in users]
    assert {1, 2} == {chosen(catalogue) for _ in range(100)}, "by chance without a name"

    catalogue.apply(split(ALL * 3 // 4)._replace(sticky="x-user"))
    later = [chosen(catalogue, x_user=user) for user in users]
    assert all(now == 2 for was, now in zip(first, later, strict=True) if was == 2)


def test_a_request_that_is_asked_again_by_its_id_keeps_its_version(catalogue: Catalogue) -> None:
    catalogue.apply(split(ALL // 2)._replace(sticky="id"))

    def version_of(request_id: str) -> int:
        return ask(catalogue, name=request_id).model.version

    assert all(len({version_of(str(number)) for _ in range(5)}) == 1 for number in range(1, 50))
    assert {1, 2} == {version_of(str(number)) for number in range(1, 50)}
    assert {1, 2} == {version_of("") for _ in range(100)}


def test_a_header_chooses_the_canary(catalogue: Catalogue) -> None:
    catalogue.apply(split(0, "x-try", "1"))
    assert [
        chosen(catalogue),
        chosen(catalogue, x_try="1"),
        chosen(catalogue, x_try="2"),
        chosen(catalogue, "1", x_try="1"),
    ] == [1, 2, 1, 1]

    catalogue.apply(split(0, "x-try"))
    assert chosen(catalogue, x_try="anything") == 2


def test_a_request_without_headers_is_divided_by_chance(catalogue: Catalogue) -> None:
    catalogue.apply(split(ALL // 2, "x-try")._replace(sticky="x-user"))
    entrance, request = entrance_of(catalogue), Ask(("m", ""), lambda _: Content(NO_INPUTS))

    assert {1, 2} == {entrance.enter(request).model.version for _ in range(100)}


@pytest.mark.parametrize("sticky", ["", "id", "x-user"])
def test_all_requests_of_a_sequence_go_one_way(catalogue: Catalogue, sticky: str) -> None:
    catalogue.apply(split(ALL // 2)._replace(sticky=sticky))

    ways = [
        {chosen(catalogue, correlation=n, x_user=str(user)) for user in range(20)}
        for n in range(1, 50)
    ]

    assert all(len(versions) == 1 for versions in ways)
    assert {1, 2} == set().union(*ways)


def test_a_version_that_does_not_serve_gets_nothing(catalogue: Catalogue) -> None:
    catalogue.apply(split(ALL))
    catalogue.apply(news(2, "UNAVAILABLE"))
    assert chosen(catalogue) == 1

    catalogue.apply(news(2))
    catalogue.apply(news(1, "UNLOADING"))
    assert chosen(catalogue) == 2


def test_a_share_of_what_the_stable_version_answers_is_copied(catalogue: Catalogue) -> None:
    assert ask(catalogue).copy is None

    catalogue.apply(split(0, shadow=ALL))
    checked = ask(catalogue)
    assert checked.copy is not None
    assert checked.model.version == 1
    assert ask(catalogue, "1").copy is None

    catalogue.apply(split(0, shadow=ALL // 2))
    assert {True, False} == {ask(catalogue).copy is None for _ in range(100)}

    catalogue.apply(split(0))
    assert ask(catalogue).copy is None

    catalogue.apply(split(ALL, shadow=ALL))
    assert ask(catalogue).copy is None


def test_an_entrance_hears_when_requests_are_divided_and_no_longer(catalogue: Catalogue) -> None:
    catalogue.apply(OVER)
    entrance = entrance_of(catalogue)
    request = Ask(("m", ""), lambda _: Content(NO_INPUTS))

    def version() -> int:
        return entrance.enter(request).model.version

    seen = [version()]
    for change in (split(0), split(ALL), split(0), OVER):
        catalogue.apply(change)
        seen.append(version())
    assert seen == [2, 1, 2, 1, 2]

    catalogue.apply(split(0))
    catalogue.forget("m")
    catalogue.apply(news(1))
    assert version() == 1


def test_a_model_that_is_forgotten_is_not_divided_when_it_comes_back(catalogue: Catalogue) -> None:
    catalogue.forget("m")

    catalogue.apply(news(1))
    catalogue.apply(news(2))

    assert chosen(catalogue) == 2
