"""The load of a model and of the server, made of the broker's answer."""

from __future__ import annotations

from typing import Any

from zmqtriton_frontends.inference.model_load import of_model, of_server, utilization


def entry(**fields: Any) -> dict[str, Any]:
    plain = {"name": "m", "version": 1, "is_ensemble": False, "queued": 0, "executing": 0}
    plain |= {"unanswered": 0, "limit": 0, "ready": 1, "instances": 1, "slots": 1, "busy_slots": 0}
    return {**plain, "requests": 0, "queue_ns": 0, "compute_ns": 0, **fields}


def answer(*entries: dict[str, Any], limit: int = 0, unanswered: int = 0) -> dict[str, Any]:
    return {"loads": list(entries), "unanswered": unanswered, "limit": limit}


def test_versions_of_a_model_are_added_up() -> None:
    one = entry(queued=2, executing=1, unanswered=3, busy_slots=1, requests=1, queue_ns=3_000_000)
    two = entry(version=2, instances=2, requests=3, queue_ns=5_000_000, compute_ns=40_000_000)

    load = of_model([one, two])

    assert (2, 1, 3) == (load["queued"], load["executing"], load["unanswered"])
    assert {"ready": 2, "all": 3} == load["instances"]
    assert (0.5, 2.0, 10.0) == (
        load["utilization"],
        load["mean_queue_ms"],
        load["mean_compute_ms"],
    )


def test_a_limit_is_told_where_every_version_has_one() -> None:
    assert 7 == of_model([entry(limit=3), entry(limit=4)])["limit"]
    assert "limit" not in of_model([entry(limit=3), entry()])


def test_what_was_not_executed_has_no_mean_times() -> None:
    assert "mean_queue_ms" not in of_model([entry()])


def test_a_model_that_is_not_loaded_has_nothing() -> None:
    load = of_model([])

    assert {"ready": 0, "all": 0} == load["instances"]
    assert (0, 0.0) == (load["unanswered"], load["utilization"])


def test_the_server_is_as_full_as_its_fullest_model() -> None:
    idle, half = entry(), entry(slots=2, busy_slots=1, ready=2, instances=2)

    assert 0.5 == utilization(answer(idle, half))
    assert 1.0 == utilization(answer(idle, entry(ready=0, slots=0)))
    assert 0.75 == utilization(answer(idle, half, limit=4, unanswered=3))
    assert 0.0 == utilization(answer())


def test_what_an_ensemble_asks_for_is_counted_once() -> None:
    member = entry(executing=1, unanswered=1, busy_slots=1)
    ensemble = entry(
        **{"name": "e", "is_ensemble": True, "executing": 1, "unanswered": 1, "ready": 0},
        **{"slots": 0, "instances": 0},
    )

    load = of_server(answer(member, ensemble, unanswered=2))

    assert (1, 2) == (load["executing"], load["unanswered"])
    assert ["m", "e"] == [each["name"] for each in load["models"]]
    assert 0.0 == load["models"][1]["utilization"]
