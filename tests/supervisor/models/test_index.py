"""The entries of models that were never loaded; those of others are in control's tests."""

from __future__ import annotations

from typing import Any

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.model_report import repository_index
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.reasons import Kind, Reason

NOT_A_MODEL, LATER = Reason.of(Kind.OTHER, "no configuration"), Reason.of(Kind.OTHER, "not yet")


def _texts(entries: list[dict[str, Any]]) -> dict[str, str]:
    return {entry["name"]: entry.get("reason", "") for entry in entries}


def test_a_problem_of_the_repository_is_the_reason_of_its_model() -> None:
    entries = repository_index({"b": None, "a": NOT_A_MODEL}, {}, None)

    assert [("a", "no configuration"), ("b", "")] == [*_texts(entries).items()]
    assert {"name": "b"} == entries[1]


def test_a_model_whose_repository_does_not_answer_is_as_it_was() -> None:
    silent = Reason.of(Kind.REPOSITORY_SILENT, "it does not answer", repository="/two")
    world = SupervisorHarness(make_blueprint("m")).start()
    listing: dict[str, Reason | None] = {"m": silent, "n": silent}

    [served, unknown] = repository_index(listing, world.core.models, None)

    assert ("m", "READY") == (served["name"], served["state"])
    assert ("n", "UNAVAILABLE", "it does not answer") == (
        unknown["name"],
        unknown["state"],
        unknown["reason"],
    )


def test_models_that_were_not_tried_say_why() -> None:
    entries = repository_index({"b": None, "a": NOT_A_MODEL}, {}, LATER)

    assert {"a": "no configuration", "b": "not yet"} == _texts(entries)


def test_a_repository_that_cannot_be_listed_has_no_models() -> None:
    assert [] == repository_index(InternalError("no such directory"), {}, LATER)
