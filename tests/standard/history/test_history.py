"""The samples of the last hour, and how the sampler takes them of broker and supervisor."""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
from collections.abc import Collection
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable, Unsupported
from zmqtriton_floor.metrics import TOKENS
from zmqtriton_floor.settings.offers import Offers
from zmqtriton_standard.history import sampler
from zmqtriton_standard.history import samples as module
from zmqtriton_standard.history.sampler import InstanceCosts, Sampler, TokenRates, samples_of
from zmqtriton_standard.history.samples import (
    LENGTH,
    MAX_MODELS,
    MAX_SHOWN,
    History,
    ModelSample,
    ProcessesSample,
    ServerSample,
)
from zmqtriton_standard.metrics.machine import MachineLoad

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


def reading(**figures: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("pending", "succeeded", "failed", "queued", "queue_ns"), 0)
    counts = {"inferences": 0, "executions": 0, "p50_ns": None, "p99_ns": None}
    return {"model": "m", "version": 1, **nothing, **counts, **figures}


def sample(*readings: dict[str, Any]) -> Any:
    return samples_of({"seconds": 5.0, "readings": readings})["m:1"]


def test_rates_and_means() -> None:
    rates = sample(
        reading(succeeded=10, failed=5, queued=10, queue_ns=20_000_000, inferences=40, executions=8)
    )

    assert (2.0, 1.0, 2.0, 5.0) == (
        rates.requests_per_s,
        rates.failures_per_s,
        rates.queue_ms,
        rates.batch,
    )


def test_without_requests_there_are_no_latencies() -> None:
    rates = sample(reading(pending=3))

    assert (0.0, 3) == (rates.requests_per_s, rates.pending)
    assert (None, None, None, None) == (
        rates.latency_p50_ms,
        rates.latency_p99_ms,
        rates.queue_ms,
        rates.batch,
    )


def test_generations_of_a_version_are_added_up() -> None:
    one = reading(succeeded=5, p50_ns=1_000_000, p99_ns=2_000_000)
    rates = sample(one, reading(succeeded=15, p50_ns=3_000_000, p99_ns=4_000_000))

    assert 4.0 == rates.requests_per_s
    assert (3.0, 4.0) == (rates.latency_p50_ms, rates.latency_p99_ms), "those of the busier one"


def rates_of(module: str) -> TokenRates:
    settings = SimpleNamespace(
        offers=Offers().adding(TOKENS.name, module) if module else Offers(),
        server=SimpleNamespace(runtime_directory=""),
    )
    return TokenRates(SimpleNamespace(settings=settings))  # type: ignore[arg-type]


@pytest.fixture
def rates() -> TokenRates:
    return rates_of("")


def tokens_of(
    rates: TokenRates, sums: dict[str, int], now_s: float, *names: str
) -> dict[str, float | None]:
    rated = rates.rate({name: ModelSample() for name in names}, sums, now_s)
    return {name: sample.tokens_per_s for name, sample in rated.items()}


def test_tokens_are_those_since_the_last_sample_of_a_model(rates: TokenRates) -> None:
    assert {"a:1": None} == tokens_of(rates, {"a:1": 100}, 10.0, "a:1")
    assert {"a:1": 4.0, "b:1": None} == tokens_of(rates, {"a:1": 120}, 15.0, "a:1", "b:1")
    # b's are there before its sample has its request
    assert {"a:1": 0.0} == tokens_of(rates, {"a:1": 120, "b:1": 10}, 20.0, "a:1")
    assert {"b:1": 2.0} == tokens_of(rates, {"a:1": 120, "b:1": 10}, 25.0, "b:1")


def made_tokens(directory: Path) -> dict[str, int]:
    """Return the sums, where the module of --token-metrics would."""
    return {"a:1": 100}


async def _play(rates: TokenRates) -> list[float | None]:
    models = {"a:1": ModelSample()}
    return [(await rates.add_to(models))["a:1"].tokens_per_s for _ in range(2)]


@pytest.mark.parametrize(("module", "expected"), [(__name__, [None, 0.0]), ("", [None, None])])
def test_only_a_server_that_counts_tokens_has_rates(
    module: str, expected: list[float | None]
) -> None:
    assert expected == asyncio.run(_play(rates_of(module)))


def test_a_process_that_counts_anew_counts_from_zero(rates: TokenRates) -> None:
    tokens_of(rates, {"a:1": 100}, 10.0)

    assert {"a:1": 1.0} == tokens_of(rates, {"a:1": 5}, 15.0, "a:1")


PROCESSES = [(os.getpid(), "m", 1, 1), (os.getppid(), "n", 1, 1), (1, "", 0, 0)]


def test_the_memory_of_a_model_is_read_while_somebody_looks_at_it() -> None:
    instances = InstanceCosts()
    instances.watch("m", 10.0)
    instances.watch(None, 10.0)

    asyncio.run(instances.look(PROCESSES, 9.0))
    own = instances.of(os.getpid())
    assert {"private_bytes", "shared_bytes", "pss_bytes"} == own.keys()
    assert 0 < own["private_bytes"] < own["pss_bytes"]
    assert {} == instances.of(os.getppid())

    asyncio.run(instances.look(PROCESSES, 10.0))
    assert {} == instances.of(os.getpid())


def test_gpus_are_read_again_and_again_until_there_is_no_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instances = InstanceCosts()
    asyncio.run(instances.look(PROCESSES, 0.0))
    turns, questions = threading.Semaphore(0), []
    answers = iter([{os.getpid(): {"0": 5}}, {}, {os.getpid(): {"1": 7}}])

    def read(pids: Collection[int]) -> Any:
        questions.append(set(pids))
        if (answer := next(answers, None)) is None:
            raise OSError("libnvidia-ml.so.1")
        return answer

    def tells(figures: dict[str, Any]) -> bool:
        return instances.of(os.getpid()) == figures

    monkeypatch.setattr(sampler, "gpu_memory_of", read)
    monkeypatch.setattr(sampler, "_pause", lambda _: turns.acquire())
    before = set(threading.enumerate())
    instances.watch_gpus(5.0)
    [thread] = set(threading.enumerate()) - before
    for figures in ({"gpu_bytes": {"0": 5}}, {}, {"gpu_bytes": {"1": 7}}):
        eventually(partial(tells, figures), 30, str(figures))
        turns.release()
    thread.join(30)

    assert not thread.is_alive()
    assert [{os.getpid(), os.getppid()}] * 4 == questions


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


# ------------------------------------------------------- calls of the supervisor
def started(*roles: str) -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m"), frontend_roles=("http", *roles)).start()


def test_a_refusal_of_the_metrics_process_comes_back() -> None:
    world = started("metrics")

    call = world.call("history", {"seconds": -1})
    [question] = world.messages_to("metrics", wire.Call)
    world.receive(world.serial("metrics"), wire.CallResult(question.id, 4, "no", "null"))

    assert (4, "no") == call.error


def test_without_a_metrics_process_the_answer_names_the_option() -> None:
    number, text = started().call("history").error

    assert Unsupported.number == number
    assert "--allow-metrics=false" in text
