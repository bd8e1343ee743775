"""Models that warm up before anybody may ask, and those that say whether they are ready."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import tritonclient.grpc
import tritonclient.http

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


#: More than the 5 seconds that a model has.
_LONG_S = 30.0


def prepare(server: Server) -> None:
    for name in ("sync", "async"):
        server.add_model("telling", name)
        _say(server, name, "yes")


def _say(server: Server, model: str, what: str) -> None:
    new = server.scratch / f"{model}.new"
    new.write_text(what)
    new.rename(server.scratch / model)


def _count_questions(server: Server, model: str) -> int:
    path = server.scratch / f"{model}.asked"
    return len(path.read_text()) if path.exists() else 0


def _readiness(server: Server, model: str) -> tuple[int, Any]:
    return server.request_json(f"/v2/models/{model}/ready", within_s=_LONG_S)


@pytest.mark.row("A28", "C03", "D02")
@pytest.mark.parametrize("model", ["sync", "async"])
def test_a_model_has_a_say_in_its_readiness(server: Server, model: str) -> None:
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        assert (200, None) == _readiness(server, model)
        assert client.is_model_ready(model)
        assert client.is_model_ready(model, "1")

        _say(server, model, "no")

        assert (400, {"error": "Model version not ready"}) == _readiness(server, model)
        assert not client.is_model_ready(model)
        assert not client.is_model_ready(model, "1")

        _say(server, model, "yes")

        assert client.is_model_ready(model)


def test_a_model_that_hangs_there_can_be_unloaded(server: Server) -> None:
    server.add_model("telling", "hung")
    _say(server, "hung", "yes")
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        client.load_model("hung")
        _say(server, "hung", "hang")
        before = _count_questions(server, "hung")
        asking = threading.Thread(target=_readiness, args=(server, "hung"))
        asking.start()
        eventually(lambda: _count_questions(server, "hung") > before, _LONG_S, "it is asked")
        [stub] = server.stub_pids("hung")

        client.unload_model("hung")

        eventually(lambda: stub not in server.stub_pids("hung"), _LONG_S, "its process has ended")
        asking.join(_LONG_S)
        eventually(lambda: "'hung' version 1" in server.log_text(), 60, "it is told")
        assert "finalize took more than" not in server.log_text()
