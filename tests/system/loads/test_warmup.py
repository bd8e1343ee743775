"""Samples of `model_warmup`, executed by real stubs before anybody may ask."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.scripted import add_model, string_parameter
from tests.support.server import Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(),
]

_INPUT = 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] } ]\n'


def sample(name: str = "s", batch_size: int = 1, more: str = "") -> str:
    zeros = 'inputs { key: "IN" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } }'
    return f'model_warmup {{ name: "{name}" batch_size: {batch_size} {more} {zeros} }}\n'


def notes_of(server: Server, name: str) -> list[dict[str, Any]]:
    """Return what instances of a model have been given, batch by batch."""
    notes = map(json.loads, (server.scratch / "warmed").read_text().splitlines())
    return [note for note in notes if note["instance"].rsplit("_", 2)[0] == name]


@pytest.mark.row("E44")
def test_each_instance_executes_each_sample_as_often_as_it_says(server: Server) -> None:
    samples = sample(batch_size=3, more="count: 2") + sample("t")
    more = "max_batch_size: 4\ninstance_group [ { count: 2 kind: KIND_CPU } ]\n"
    add_model(server, "warmed", "several", _INPUT + samples + more)

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


def test_the_samples_of_a_model_in_front_warm_up_a_whole_ensemble(server: Server) -> None:
    add_model(server, "warmed", "member", _INPUT)
    server.write_model("steps", _STEPS)
    front = 'backend: "python"\n' + string_parameter("BLS_MODELS", "steps")
    output = "output { name: 'OUT' data_type: TYPE_FP32 dims: 1 }\n"
    server.write_model("front", front + _INPUT + output + sample(), _FRONT)

    assert "" == server.control_model("load", "front")

    [note] = notes_of(server, "member")
    assert ["[0.0, 0.0]"] == [request["inputs"]["IN"][2] for request in note["batch"]]
