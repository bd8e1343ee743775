"""Measurements of instances: their memory on GPUs, and what of the machine's they share."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection
from functools import partial
from typing import Any

import pytest

from tests.support.waiting import eventually
from zmqtriton_standard.history import sampler
from zmqtriton_standard.history.sampler import InstanceCosts

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
