"""Samples of `model_warmup`, executed by real stubs before anybody may ask."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

SHARED = True

_INPUT = 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] } ]\n'
_ONE = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"


def tensor(source: str, *, name: str = "IN", kind: str = "FP32", dims: str = "2") -> str:
    value = f"data_type: TYPE_{kind} dims: [ {dims} ] {source}"
    return f'inputs {{ key: "{name}" value {{ {value} }} }}'


def sample(*inputs: str, name: str = "s", batch_size: int = 1, more: str = "") -> str:
    start = f'model_warmup {{ name: "{name}" batch_size: {batch_size} {more} '
    return start + " ".join(inputs) + " }\n"


ZERO = tensor("zero_data: true")


class Repository:
    """A server that loads what is asked for, and what its models have been given."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._notes = server.scratch / "warmed"

    def add(self, name: str, config: str, batches: int = 4, mode: str = "", **files: bytes) -> None:
        directory = self.server.add_model("warmed", name)
        more = f"max_batch_size: {batches}\n"
        more += "" if "instance_group" in config else _ONE
        more += f'parameters {{ key: "MODE" value {{ string_value: "{mode}" }} }}\n'
        path = directory / "config.pbtxt"
        path.write_text(path.read_text() + config + more)
        for file, data in files.items():
            (directory / "warmup").mkdir(exist_ok=True)
            (directory / "warmup" / file).write_bytes(data)

    def load(self, name: str) -> str:
        """Load a model; return "" or the error."""
        return self.server.control_model("load", name)

    def notes(self, name: str) -> list[dict[str, Any]]:
        """Of each batch that instances of a model have executed."""
        if not self._notes.exists():
            return []
        notes = [json.loads(line) for line in self._notes.read_text().splitlines()]
        return [note for note in notes if note["instance"].rsplit("_", 2)[0] == name]

    def batches(self, name: str) -> list[list[dict[str, Any]]]:
        """The inputs of the requests of each batch."""
        return [[one["inputs"] for one in note["batch"]] for note in self.notes(name)]


@pytest.fixture(scope="module")
def repository(server: Server) -> Repository:
    return Repository(server)


@pytest.mark.row("E44")
def test_each_instance_executes_each_sample_as_often_as_it_says(repository: Repository) -> None:
    two = "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
    samples = sample(ZERO, batch_size=3, more="count: 2") + sample(ZERO, name="t")
    repository.add("several", _INPUT + two + samples)

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


def test_warm_up_is_not_counted(repository: Repository) -> None:
    repository.add("uncounted", _INPUT + sample(ZERO, batch_size=2))

    assert "" == repository.load("uncounted")

    statistics = repository.server.statistics("uncounted")
    assert (0, 0, 0) == (
        statistics["inference_count"],
        statistics["execution_count"],
        statistics["last_inference"],
    )
    assert 0 == statistics["inference_stats"]["success"]["count"]
    lines = repository.server.metrics_text().splitlines()
    counted = [line for line in lines if line.startswith("nv_inference") and "uncounted" in line]
    assert counted
    assert all(line.endswith(" 0") for line in counted)


def test_a_model_may_ask_others_in_warm_up(repository: Repository) -> None:
    repository.add("plain", _INPUT + sample(ZERO), batches=0)
    repository.add("plain_2", _INPUT + sample(ZERO), mode="ask", batches=0)
    repository.load("plain")

    assert "" == repository.load("plain_2")

    assert 1 == repository.server.statistics("plain")["inference_count"]


_PROBLEMS = {
    "raise": (
        _INPUT + sample(ZERO, batch_size=2),
        "raise",
        "failed to run warmup sample 's': Failed to process the request(s) for model "
        "'raise_0_0', message: ValueError: too cold\n\nAt:\n",
    ),
    "died": (_INPUT + sample(ZERO), "exit", "Stub process 'died_0_0' is not healthy."),
}


@pytest.mark.row("E44")
@pytest.mark.parametrize("name", _PROBLEMS)
def test_a_sample_that_fails_fails_the_load(repository: Repository, name: str) -> None:
    config, mode, text = _PROBLEMS[name]
    repository.add(name, config, mode=mode, data=b"\0\0\0\0")

    problem = repository.load(name)

    assert text in problem
    assert f"'{name}'" in problem
    assert repository.server.status(f"/v2/models/{name}/ready") == 400


def test_what_samples_answer_leaves_nothing_behind(repository: Repository) -> None:
    output = 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] } ]\n'
    repository.add("answers", output + sample(ZERO, more="count: 100"), mode="large")

    assert "" == repository.load("answers")

    # Four megabytes each: were they kept, 400 would be in the arena.
    [stub] = repository.server.stub_pids("answers")
    status = Path(f"/proc/{stub}/status").read_text()
    shared = next(line for line in status.splitlines() if line.startswith("RssShmem"))
    assert int(shared.split()[1]) < 100_000


def test_who_comes_in_place_of_the_dead_warms_up_too(repository: Repository) -> None:
    repository.add("restarted", _INPUT + sample(ZERO))
    assert "" == repository.load("restarted")
    [first] = repository.server.stub_pids("restarted")

    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(repository.notes("restarted")) == 2, 30, "the next one has warmed up")
    path = repository.server.repository / "restarted" / "1" / "model.py"
    path.write_text(path.read_text() + "\n")
    assert "" == repository.load("restarted")

    assert 3 == len({note["pid"] for note in repository.notes("restarted")})
