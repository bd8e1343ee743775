"""The samples of the last hour."""

from __future__ import annotations

from typing import Any

from zmqtriton_standard.history import samples as module
from zmqtriton_standard.history.samples import (
    LENGTH,
    MAX_MODELS,
    MAX_SHOWN,
    History,
    ModelSample,
    ProcessesSample,
    ServerSample,
)

BUSY, HOUR_S = ModelSample(requests_per_s=0.5, latency_p50_ms=1.25), 3600.0
SERVER = ServerSample(cpu_percent=50.0, memory_bytes=1024.0)


def filled(*samples: dict[str, ModelSample] | None) -> History:
    history = History()
    for number, models in enumerate(samples):
        history.add(number * 5.0, SERVER, models, {"m:1": ProcessesSample(2, 4096)})
    return history


def columns(history: History, name: str = "m:1") -> dict[str, list[Any]]:
    return history.document(HOUR_S)["models"][name]


def test_it_keeps_one_hour_and_forgets_what_was_idle_for_as_long() -> None:
    busy = {"m:1": BUSY, "fails:1": ModelSample(0, 0.5), "hangs:1": ModelSample(pending=0.5)}
    models = {**busy, "old:1": ModelSample()}
    history = filled({**busy, "old:1": BUSY}, *[models] * (LENGTH - 1))
    assert models.keys() == history.document(HOUR_S)["models"].keys()

    history.add(0.0, SERVER, models, {})

    document = history.document(2 * HOUR_S)
    assert busy.keys() == document["models"].keys()
    assert LENGTH == len(document["times"])
    assert 5.0 == document["times"][0]


def test_the_model_that_was_idle_for_longest_makes_room() -> None:
    history = filled({"idle:1": BUSY}, {f"m{number}:1": BUSY for number in range(MAX_MODELS)})

    assert {} == history.document(HOUR_S, "idle")["models"]
    assert ["m7:1"] == [*history.document(HOUR_S, "m7")["models"]]


MANY = {f"m{number}:1": BUSY for number in range(MAX_SHOWN + 3)}


def test_an_answer_has_those_models_that_had_most_requests() -> None:
    busiest = {"m1:1": ModelSample(failures_per_s=9.0)}
    history = filled({**MANY, **busiest}, {"m2:1": BUSY}, {"m3:1": ModelSample(pending=1)})

    document = history.document(HOUR_S)

    assert (MAX_SHOWN, 3) == (len(document["models"]), document["models_left_out"])
    assert ["m1:1", "m2:1"] == [*document["models"]][:2]


def test_who_may_see_some_models_gets_their_part_of_the_totals() -> None:
    history = filled({**MANY, "own:1": BUSY, "own:2": BUSY}, {"m1:1": BUSY})

    document = history.document(HOUR_S, is_visible=lambda name: name == "own")

    assert {"own:1", "own:2"} == document["models"].keys()
    assert 0 == document["models_left_out"]
    assert [1.0, 0.0] == document["server"]["requests_per_s"]


def test_the_times_are_those_of_the_clock_as_it_is_now() -> None:
    assert [100.0, 105.0] == filled({}, {}).document(60, clock_offset_s=100.0)["times"]


def test_its_length_is_an_hour() -> None:
    assert HOUR_S == LENGTH * module.INTERVAL_S
