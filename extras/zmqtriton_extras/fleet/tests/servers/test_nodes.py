"""Addresses and announcements of servers."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.fleet.servers.nodes import (
    Node,
    merge,
    node_of,
    parse_address,
    parse_address_list,
    parse_announcements,
)
from zmqtriton_floor.errors import InvalidArgument


def announcement(**changes: Any) -> dict[str, Any]:
    fields = {"format": 1, "started_s": 1, "at_s": 2, "interval_s": 5, "state": "ready"}
    addresses = {"http": "10.0.0.7:8000", "grpc": "10.0.0.7:8001", "metrics": "10.0.0.7:8002"}
    return {**fields, "addresses": addresses, "tls": [], "models": [], **changes}


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("a.example:8000", Node("a.example:8000")),
        ("http://a:8000/", Node("a:8000")),
        ("a:8000,grpc=8001,agent=9003", Node("a:8000", "a:8001", "a:9003")),
        ("[::1]:8000,grpc=8001", Node("[::1]:8000", "[::1]:8001")),
        ("a:8000,grpc=b:8001", Node("a:8000", "b:8001")),
        ("https://a:8000,grpcs=8001", Node("a:8000", "a:8001", tls=frozenset({"http", "grpc"}))),
    ],
)
def test_an_address_with_further_ports(text: str, node: Node) -> None:
    assert node == parse_address(text)


@pytest.mark.parametrize(
    "text", ["a", "a:b", ":8000", "a:0", "a:8000,grpc=x", "a:8000,x=1", "ftp://a:8000", "a b:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_address(text)


def test_a_list_of_addresses_may_have_comments() -> None:
    assert [Node("a:1"), Node("b:2")] == parse_address_list("# all\na:1 # first\n\nb:2\n")


def test_a_node_has_a_url_and_a_name_without_colons() -> None:
    node = parse_address("https://[::1]:8000")

    assert (node.url, node.name) == ("https://[::1]:8000", "1-8000")


def test_announcements_come_alone_in_lists_and_in_lines() -> None:
    for text in ('{"a": 1}', '[{"a": 1}]', '{"a": 1}\n', '\n{"a": 1}\n'):
        assert parse_announcements(text) == [{"a": 1}]
    assert len(parse_announcements('{"a": 1}\n{"a": 2}\n')) == 2
    for text in ("3", "[3]", "nothing"):
        with pytest.raises(InvalidArgument):
            parse_announcements(text)


def test_an_announced_server_has_the_models_that_were_not_unloaded() -> None:
    models = [
        {"name": "a", "version": "1", "state": "READY"},
        {"name": "a", "version": "2", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "b", "version": "1", "state": "UNAVAILABLE", "reason": "no module"},
        {"name": "c", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
    ]
    node = node_of(announcement(models=models, tls=["http"]))

    assert node is not None
    assert node.models == ("a", "b")
    assert node.url == "https://10.0.0.7:8000"
    assert [node.has("b"), node.has("c")] == [True, False]


def test_a_server_that_was_not_heard_of_for_three_intervals_is_gone() -> None:
    heard, lost = (node_of(announcement(), age_s) for age_s in (14.0, 16.0))

    assert heard is not None
    assert lost is not None
    assert [(n.state, n.is_gone) for n in (heard, lost)] == [("ready", False), ("stale", True)]


@pytest.mark.parametrize(
    "changes", [{"format": 2}, {"addresses": {"grpc": "a:1"}}, {"addresses": None}]
)
def test_what_cannot_be_understood_or_asked_is_no_server(changes: dict[str, Any]) -> None:
    assert node_of(announcement(**changes)) is None


@pytest.mark.parametrize(
    "changes",
    [
        *({name: "x"} for name in ("at_s", "started_s", "interval_s", "models")),
        {"at_s": None},
        {"at_s": {}},
        {"interval_s": []},
        {"tls": 1},
        {"tls": [[]]},
        {"models": {"a": 1}},
        {"models": 1},
        {"models": [1]},
        {"models": [{}]},
        {"models": [{"name": 1}]},
        {"addresses": {"http": 1}},
        {"addresses": {"http": "a"}},
    ],
    ids=str,
)
def test_an_odd_announcement_is_refused_with_a_reason(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        node_of(announcement(**changes))


def test_of_one_address_the_latest_run_and_its_latest_word_count() -> None:
    orders = [(1.0, 9.0), (2.0, 3.0), (2.0, 4.0), (1.0, 10.0)]
    nodes = [Node("a:1", order=each) for each in orders]

    assert [Node("a:1", order=(2.0, 4.0)), Node("b:1")] == merge([*nodes, Node("b:1")])
