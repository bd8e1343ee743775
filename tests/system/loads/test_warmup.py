"""Samples of `model_warmup`, executed by real stubs before anybody may ask."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

SHARED = True

_INPUT = 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] } ]\n'


def sample(name: str = "s", batch_size: int = 1, more: str = "") -> str:
    zeros = 'inputs { key: "IN" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } }'
    return f'model_warmup {{ name: "{name}" batch_size: {batch_size} {more} {zeros} }}\n'


class Repository:
    """A server that loads what is asked for, and what its models have been given."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._notes = server.scratch / "warmed"

    def add(self, name: str, config: str, instances: int = 1) -> None:
        path = self.server.add_model("warmed", name) / "config.pbtxt"
        group = f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n"
        path.write_text(f"{path.read_text()}{config}max_batch_size: 4\n{group}")

    def load(self, name: str) -> str:
        """Load a model; return "" or the error."""
        return self.server.control_model("load", name)

    def notes(self, name: str) -> list[dict[str, Any]]:
        """Of each batch that instances of a model have executed."""
        if not self._notes.exists():
            return []
        notes = [json.loads(line) for line in self._notes.read_text().splitlines()]
        return [note for note in notes if note["instance"].rsplit("_", 2)[0] == name]


@pytest.fixture(scope="module")
def repository(server: Server) -> Repository:
    return Repository(server)


@pytest.mark.row("E44")
def test_each_instance_executes_each_sample_as_often_as_it_says(repository: Repository) -> None:
    samples = sample(batch_size=3, more="count: 2") + sample("t")
    repository.add("several", _INPUT + samples, instances=2)

    assert "" == repository.load("several")

    zeros = {"IN": [[1, 2], "float32", "[0.0, 0.0]"]}
    notes = repository.notes("several")
    for instance in ("several_0_0", "several_0_1"):
        batches = [note["batch"] for note in notes if note["instance"] == instance]
        assert [3, 3, 1] == [len(batch) for batch in batches]
        assert all(zeros == request["inputs"] for batch in batches for request in batch)
    request = notes[0]["batch"][0]
    facts = (request["id"], request["flags"], request["correlation"], request["outputs"])
    assert ("", 0, 0, ["OUT"]) == facts


def test_who_comes_in_place_of_the_dead_warms_up_too(repository: Repository) -> None:
    repository.add("restarted", _INPUT + sample())
    assert "" == repository.load("restarted")
    [first] = repository.server.stub_pids("restarted")

    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(repository.notes("restarted")) == 2, 30, "the next one has warmed up")
    path = repository.server.repository / "restarted" / "1" / "model.py"
    path.write_text(path.read_text() + "\n")
    assert "" == repository.load("restarted")

    assert 3 == len({note["pid"] for note in repository.notes("restarted")})
