"""Samples of `model_warmup`, executed by real stubs before anybody may ask."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.support.scripted import add_model, string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(),
]

_INPUT = 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] } ]\n'


def sample(name: str = "s", batch_size: int = 1, more: str = "") -> str:
    zeros = 'inputs { key: "IN" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } }'
    return f'model_warmup {{ name: "{name}" batch_size: {batch_size} {more} {zeros} }}\n'


def add(server: Server, name: str, config: str, instances: int = 1) -> None:
    group = f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n"
    add_model(server, "warmed", name, f"{config}max_batch_size: 4\n{group}")


def notes_of(server: Server, name: str) -> list[dict[str, Any]]:
    """Return what instances of a model have been given, batch by batch."""
    path = server.scratch / "warmed"
    notes = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [note for note in notes if note["instance"].rsplit("_", 2)[0] == name]


@pytest.mark.row("E44")
def test_each_instance_executes_each_sample_as_often_as_it_says(server: Server) -> None:
    samples = sample(batch_size=3, more="count: 2") + sample("t")
    add(server, "several", _INPUT + samples, instances=2)

    assert "" == server.control_model("load", "several")

    zeros = {"IN": [[1, 2], "float32", "[0.0, 0.0]"]}
    notes = notes_of(server, "several")
    for instance in ("several_0_0", "several_0_1"):
        batches = [note["batch"] for note in notes if note["instance"] == instance]
        assert [3, 3, 1] == [len(batch) for batch in batches]
        assert all(zeros == request["inputs"] for batch in batches for request in batch)
    request = notes[0]["batch"][0]
    facts = (request["id"], request["flags"], request["correlation"], request["outputs"])
    assert ("", 0, 0, ["OUT"]) == facts


def test_who_comes_in_place_of_the_dead_warms_up_too(server: Server) -> None:
    add(server, "restarted", _INPUT + sample())
    assert "" == server.control_model("load", "restarted")
    [first] = server.stub_pids("restarted")

    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(notes_of(server, "restarted")) == 2, 30, "the next one has warmed up")
    path = server.repository / "restarted" / "1" / "model.py"
    path.write_text(path.read_text() + "\n")
    assert "" == server.control_model("load", "restarted")

    assert 3 == len({note["pid"] for note in notes_of(server, "restarted")})


_STEPS = """platform: "ensemble"
input { name: "IN" data_type: TYPE_FP32 dims: 2 }
output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling { step {
  model_name: "member" model_version: -1
  input_map { key: "IN" value: "IN" }
  output_map { key: "OUT" value: "OUT" }
} }
"""
_FRONT = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceRequest(
                model_name="steps", inputs=one.inputs(), requested_output_names=["OUT"]
            ).exec()
            for one in requests
        ]
"""


def write(server: Server, name: str, config: str, code: str = "") -> None:
    directory = server.repository / name / "1"
    directory.mkdir(parents=True)
    (directory.parent / "config.pbtxt").write_text(config)
    (directory / "model.py").write_text(code)


def test_the_samples_of_a_model_in_front_warm_up_a_whole_ensemble(server: Server) -> None:
    add_model(server, "warmed", "member", _INPUT)
    write(server, "steps", _STEPS)
    front = 'backend: "python"\n' + string_parameter("BLS_MODELS", "steps")
    output = "output { name: 'OUT' data_type: TYPE_FP32 dims: 1 }\n"
    write(server, "front", front + _INPUT + output + sample(), _FRONT)

    assert "" == server.control_model("load", "front")

    [note] = notes_of(server, "member")
    assert ["[0.0, 0.0]"] == [request["inputs"]["IN"][2] for request in note["batch"]]
