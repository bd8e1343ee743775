"""The response cache from outside: who is answered without an execution, and how that counts."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.support import scripted
from tests.support.clients import infer_inputs
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_CACHED = "response_cache { enable: true }\n"
#: Says how often the instance has executed this one.
_COUNTING = "self.kept['n'] = self.kept.get('n', 0) + 1\nreturn [reply(self.kept['n'])]"
_ENSEMBLE = """
platform: "ensemble"
input [ { name: "SCRIPT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "MEMBER" model_version: -1
  input_map { key: "SCRIPT" value: "SCRIPT" } output_map { key: "TEXT" value: "TEXT" }
} ] }
"""


#: What it answers is not what it was given, so it is its own.
_TWICE = """
class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy() for r in requests]
        made = [pb_utils.Tensor("OUTPUT0", 2 * array) for array in given]
        return [pb_utils.InferenceResponse([tensor]) for tensor in made]
"""


#: Asks the model that a parameter names with what it was given.
_ASKING = """
class TritonPythonModel:
    def execute(self, requests):
        return [self._ask(request) for request in requests]

    def _ask(self, request):
        asked = pb_utils.InferenceRequest(
            model_name=json.loads(request.parameters())["asks"],
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.get_input_tensor_by_name(request, "INPUT0")],
        )
        response = asked.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(response.output_tensors())
"""


def _chain(members: list[str]) -> str:
    """One identity after another."""
    names = ["INPUT0", *(f"T{number}" for number in range(1, len(members))), "OUTPUT0"]
    steps = [
        f'{{ model_name: "{member}" model_version: -1 input_map {{ key: "INPUT0" value: "{read}" }}'
        f' output_map {{ key: "OUTPUT0" value: "{written}" }} }}'
        for member, read, written in zip(members, names, names[1:], strict=False)
    ]
    return f"""
platform: "ensemble"
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
ensemble_scheduling {{ step [ {", ".join(steps)} ] }}
"""


MODELS = ["scripted"]
OPTIONS = [
    "--cache-config=local,size=4194304",
    "--model-control-mode=explicit",
    "--load-model=*",
]


def prepare(server: Server) -> None:
    for name in ("cached", "first_asked", "reloaded", "member"):
        scripted.add_model(server, "scripted", name, _CACHED)
    for name, member, more in (("around", "member", ""), ("whole", "scripted", _CACHED)):
        path = server.repository / name
        (path / "1").mkdir(parents=True)
        (path / "config.pbtxt").write_text(_ENSEMBLE.replace("MEMBER", member) + more)
    identity = server.add_model("identity_fp32", "large") / "config.pbtxt"
    identity.write_text(identity.read_text() + _CACHED)
    server.add_model("identity_fp32", "plain")
    code = "import triton_python_backend_utils as pb_utils\n\n\n" + _TWICE
    for name, more in (("twice", ""), ("cached_twice", _CACHED)):
        twice = server.add_model("identity_fp32", name)
        (twice / "1" / "model.py").write_text(code)
        (twice / "config.pbtxt").write_text((twice / "config.pbtxt").read_text() + more)
    asking = server.add_model("identity_fp32", "asking") / "1" / "model.py"
    asking.write_text("import json\n" + code.replace(_TWICE, _ASKING))
    chains = {
        "into": ["cached_twice"],
        "passed": ["plain", "cached_twice"],
        "through": ["twice", "cached_twice"],
    }
    for name, members in chains.items():
        (server.repository / name / "1").mkdir(parents=True)
        (server.repository / name / "config.pbtxt").write_text(_chain(members))
    # As a member of an ensemble, which is one of another.
    (server.repository / "beyond" / "1").mkdir(parents=True)
    (server.repository / "beyond" / "config.pbtxt").write_text(_chain(["twice", "into"]))


def counts(server: Server, model: str) -> dict[str, int]:
    statistics = server.statistics(model)
    kinds = {kind: of["count"] for kind, of in statistics["inference_stats"].items()}
    return kinds | {
        "executions": statistics["execution_count"],
        "inferences": statistics["inference_count"],
    }


@pytest.mark.row("E45", "--cache-config")
def test_equal_requests_are_executed_once_whichever_way_they_come(server: Server) -> None:
    model = "first_asked"
    before = counts(server, model)
    over_http = [scripted.generate(server, model, _COUNTING, "a", id=i) for i in ("1", "2")]
    [script] = infer_inputs(grpc_client, SCRIPT=np.array([_COUNTING.encode()], dtype=np.object_))
    [argument] = infer_inputs(grpc_client, ARGUMENT=np.array([b"a"], dtype=np.object_))
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        # HTTP's generate asks for all outputs, so this does.
        over_grpc = client.infer(model, [argument, script]).as_numpy("TEXT")[0].decode()
    other = scripted.generate(server, model, _COUNTING, "b")

    after = counts(server, model)

    assert (["1", "1"], "1", "2") == (over_http, over_grpc, other)
    changed = {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]}
    executed = dict.fromkeys(("compute_input", "compute_infer", "compute_output"), 2)
    assert (
        executed
        | {
            "success": 4,
            "queue": 4,
            "cache_hit": 2,
            "cache_miss": 2,
            "executions": 2,
            "inferences": 2,
        }
        == changed
    )
    assert server.statistics(model)["inference_stats"]["cache_hit"]["ns"] > 0


@pytest.mark.row("nv_model_load_duration_secs")
def test_how_long_models_and_ensembles_took_to_load_is_measured(server: Server) -> None:
    lines = server.metrics_text().splitlines()

    took = {line: float(line.split()[-1]) for line in lines if "{" in line and "_load_d" in line}
    assert len(list(server.repository.iterdir())) == len(took)
    assert all(0 <= seconds < 60 for seconds in took.values()), took
    assert any(took.values())


def test_without_response_cache_each_is_executed(server: Server) -> None:
    answers = [scripted.generate(server, "scripted", _COUNTING) for _ in range(2)]

    assert answers[0] != answers[1]
    assert 0 == counts(server, "scripted")["cache_miss"]


@pytest.mark.row("E45")
def test_what_models_ask_each_other_is_kept_among_them(server: Server) -> None:
    question = "return [reply(answer_of(ask('cached', ARGUMENT, 'bls').exec()))]"
    script = f"ARGUMENT = text_of(request)\n{question}"
    before = counts(server, "cached")

    answers = {scripted.generate(server, "scripted", script, _COUNTING) for _ in range(3)}

    after = counts(server, "cached")
    assert 1 == len(answers)
    assert 1 == after["executions"] - before["executions"]
    assert 2 == after["cache_hit"] - before["cache_hit"]


@pytest.mark.row("E45")
@pytest.mark.parametrize(("ensemble", "counting"), [("around", "member"), ("whole", "whole")])
def test_a_member_of_an_ensemble_and_an_ensemble_as_a_whole(
    server: Server, ensemble: str, counting: str
) -> None:
    script = f"# {ensemble}\n{_COUNTING}"
    executed_before = counts(server, "scripted")["executions"]

    answers = [scripted.generate(server, ensemble, script) for _ in range(3)]

    after = counts(server, counting)
    assert 1 == len(set(answers))
    assert (2, 1) == (after["cache_hit"], after["cache_miss"])
    assert (3, 0) == (counts(server, ensemble)["success"], counts(server, ensemble)["fail"])
    executed = counts(server, "scripted")["executions"] - executed_before
    assert (counting == "whole") == executed


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_large_tensors_are_kept_where_they_lie(server: Server, size: int) -> None:
    sent = [np.full(size, value, np.float32) for value in (1, 2, 1)]
    before = counts(server, "large")
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        for data in sent:
            [tensor] = infer_inputs(http_client, INPUT0=data)
            answer = client.infer("large", [tensor]).as_numpy("OUTPUT0")

            np.testing.assert_array_equal(data, answer)

    after = counts(server, "large")
    assert (1, 2) == tuple(after[k] - before[k] for k in ("cache_hit", "cache_miss"))


def test_a_broker_that_takes_over_begins_without_answers(server: Server) -> None:
    script = f"# a broker dies\n{_COUNTING}"
    first = scripted.generate(server, "cached", script)
    (broker,) = server.pids()["broker"]
    os.kill(broker, signal.SIGKILL)
    eventually(lambda: server.is_ready() and server.pids().get("broker", [broker]) != [broker], 30)

    again = [scripted.generate(server, "cached", script) for _ in range(2)]

    assert first != again[0] == again[1]
