"""Figures of frontends about their clients."""

from __future__ import annotations

from typing import Any

from zmqtriton.supervisor.control.server_status import Clients

MEMORY = {"requests_bytes": 1, "answers_bytes": 2, "requests_refused": 3, "answers_refused": 4}


def figures(answers: int, **more: Any) -> dict[str, Any]:
    return {"role": "http", "connections": 2, "counts": {"answers": {"200": answers}}, **more}


def total(clients: Clients) -> int:
    [row] = clients.describe()
    assert ("http", "answers", "200") == (row["role"], row["counter"], row["label"])
    count: int = row["count"]
    return count


def test_counters_of_processes_are_added_up_and_outlive_them() -> None:
    clients = Clients()
    clients.take(1, figures(5))
    clients.take(2, figures(3))
    clients.take(1, figures(7))

    clients.forget(1)
    before = total(clients)
    clients.take(3, figures(1))

    assert (10, 11) == (before, total(clients))


def test_memory_and_connections_are_those_of_the_process() -> None:
    clients = Clients()
    clients.take(1, figures(0, memory=MEMORY))
    clients.take(2, figures(0))

    assert {"client_memory": MEMORY, "connections": 2} == clients.describe_process(1)
    assert {"connections": 2} == clients.describe_process(2)
    clients.forget(1)
    assert {} == clients.describe_process(1)


def test_a_guest_may_tell_anything() -> None:
    clients = Clients()
    for nonsense in (
        {},
        {"memory": 3, "connections": "x", "counts": [1]},
        {"memory": {"requests_bytes": "x"}, "counts": {"a": 1, "b": {"c": None, "d": -4}}},
        figures(True),
        figures(0, counts={"x": {str(number): 1 for number in range(5000)}}),
    ):
        clients.take(1, nonsense)

    assert len(clients.describe()) <= 1024
    assert 0 == clients.describe_process(1)["client_memory"]["requests_bytes"]
