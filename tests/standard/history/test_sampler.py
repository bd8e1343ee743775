"""The samples that are taken of broker and supervisor, and the answers to questions for them."""

from __future__ import annotations

import asyncio
import json
import math
import os
from types import SimpleNamespace
from typing import Any

import pytest

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable, Unsupported
from zmqtriton_floor.settings.offers import Offers
from zmqtriton_standard.history.sampler import Sampler
from zmqtriton_standard.metrics.machine import MachineLoad

READING = {"model": "m", "version": 1, "pending": 0, "succeeded": 5, "failed": 0, "queued": 5}
READING |= {"queue_ns": 0, "inferences": 5, "executions": 5, "p50_ns": 1_000_000, "p99_ns": None}


class Gateway:
    """Answers what a broker and a supervisor would."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(
            offers=Offers(), server=SimpleNamespace(runtime_directory="")
        )
        self.answer: Any = {"seconds": 5.0, "readings": [READING]}
        self.processes = [[os.getpid(), "m", 1, 1]]

    async def statistics(self, *, kind: int) -> Any:
        assert wire.READINGS == kind
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def call(self, verb: str, arguments: dict[str, Any]) -> Any:
        assert ("processes", {}) == (verb, arguments)
        return self.processes


def ask(sampler: Sampler, verb: str, **arguments: Any) -> Any:
    answer = sampler.answer(wire.Call(3, verb, json.dumps(arguments)))
    assert 3 == answer.id
    return json.loads(answer.result) if not answer.code else answer.code


def test_what_is_not_known_of_an_interval_is_none() -> None:
    gateway = Gateway()
    sampler = Sampler(gateway, MachineLoad(1))  # type: ignore[arg-type]

    for answer in (gateway.answer, {"seconds": 0.0, "readings": []}, Unavailable("no broker")):
        gateway.answer = answer
        asyncio.run(sampler.sample())

    document = ask(sampler, "history")
    of_model = document["models"]["m:1"]
    assert [1.0, None, None] == of_model["requests_per_s"]
    assert [1, None, None] == of_model["instances"]
    assert all(document["server"]["memory_bytes"])
    assert [1.0, None, None] == document["server"]["requests_per_s"]


def test_the_last_sample_has_each_process_and_the_rates_of_busy_models() -> None:
    gateway = Gateway()
    sampler = Sampler(gateway, MachineLoad(1))  # type: ignore[arg-type]

    asyncio.run(sampler.sample())
    document = ask(sampler, "latest")
    assert {"m:1": {"requests_per_s": 1.0, "failures_per_s": 0.0, "queue_ms": 0.0}} == document[
        "rates"
    ]
    assert {str(os.getpid())} == document["processes"].keys()

    gateway.answer = Unavailable("no broker")
    asyncio.run(sampler.sample())
    assert ask(sampler, "latest")["rates"] is None


def test_a_reader_gets_the_models_that_it_may_see() -> None:
    sampler = Sampler(Gateway(), MachineLoad(1))  # type: ignore[arg-type]
    asyncio.run(sampler.sample())

    for globs, expected in ((["m*", "x"], {"m:1"}), (["x"], set())):
        assert expected == ask(sampler, "history", visible_models=globs)["models"].keys()
    assert {} == ask(sampler, "history", seconds=0.5)["models"], "no sample is as short"


@pytest.mark.parametrize(
    ("verb", "arguments", "error"),
    [
        ("history", {"seconds": 0}, InvalidArgument),
        ("history", {"seconds": "60"}, InvalidArgument),
        ("history", {"seconds": True}, InvalidArgument),
        ("history", {"seconds": -0.5}, InvalidArgument),
        ("history", {"seconds": math.inf}, InvalidArgument),
        ("history", {"model": 1}, InvalidArgument),
        ("stop", {}, Unsupported),
    ],
)
def test_a_wrong_question_is_refused(verb: str, arguments: dict[str, Any], error: Any) -> None:
    assert error.number == ask(Sampler(Gateway(), MachineLoad(1)), verb, **arguments)  # type: ignore[arg-type]
