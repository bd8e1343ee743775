"""Counters of a model: successes, failures, batches, streams, steps of ensembles, loads."""

from __future__ import annotations

from tests.conformance.cases import (
    Case,
    Http,
    Request,
    Rpc,
    code,
    coded,
    get,
    infer,
    post,
    streamed,
    tensor,
)
from tests.conformance.repositories import Model, Written

REPOSITORY = "statistics"
OPTIONS = ("--model-control-mode=explicit", "--load-model=*")

_DECOUPLED = "model_transaction_policy { decoupled: true }\n"
_PIPELINE = """
platform: "ensemble"
input [ { name: "CODE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "SAID" data_type: TYPE_STRING dims: [ -1 ] } ]
ensemble_scheduling { step [ {
  model_name: "%s" model_version: -1
  input_map { key: "CODE" value: "CODE" } output_map { key: "SAID" value: "SAID" }
} ] }
"""
_PLAIN = (
    "plain",
    "failing",
    "refused",
    "short",
    "odd",
    "errors",
    "asked",
    "asking",
    "generating",
    "reloaded",
    "unloaded",
    "step",
    "step_that_fails",
    "over_grpc",
    "patient",
)
_STREAMS = ("streaming", "silent", "stream_that_fails", "stream_of_errors")
MODELS: tuple[Model | Written, ...] = (
    *(Model("coded", name) for name in _PLAIN),
    *(
        Model("coded", name, "max_batch_size: 8\n")
        for name in ("batched", "two_sizes", "too_large")
    ),
    *(Model("coded", name, _DECOUPLED) for name in _STREAMS),
    Written("pipeline", _PIPELINE % "step", {"1/empty": ""}),
    Written("pipeline_that_fails", _PIPELINE % "step_that_fails", {"1/empty": ""}),
)

_SAY = "return [say(1)]"
_SENDER = "sender = request.get_response_sender()\n"
_FINAL = "flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
_ERROR = "sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError('no')))\n"
_THREE = _SENDER + f"sender.send(say(1))\nsender.send(say(2))\nsender.send(say(3), {_FINAL})"
#: Triton counts after it has answered.
LATER = coded("import time\ntime.sleep(0.1)\nreturn [say(1)]", model="patient")
_NONE = _SENDER + f"sender.send({_FINAL})"


def stats(model: str) -> Http:
    return get(f"/v2/models/{model}/stats")


def in_batch(model: str, size: int) -> Http:
    return infer(model, tensor("CODE", "BYTES", ["return [say(*[1])]"] * size, [size, 1]))


def counted(name: str, model: str, *requests: Request, why: str) -> Case:
    later = (LATER,) if requests else ()
    return Case(f"statistics_{name}", (*requests, *later, stats(model)), "C80", why)


CASES = (
    counted("before_any_request", "plain", why="nothing, and no batches"),
    counted("after_two_successes", "plain", *2 * [coded(_SAY, model="plain")], why="two"),
    Case("statistics_of_a_version", get("/v2/models/plain/versions/1/stats"), "C07", "the same"),
    Case(
        "statistics_of_no_version",
        get("/v2/models/plain/versions//stats"),
        "C07",
        "a path that is not there",
    ),
    Case(
        "statistics_of_a_version_that_is_no_number",
        get("/v2/models/plain/versions/one/stats"),
        "C07",
        "a version is a number",
    ),
    Case("statistics_with_a_body", Http("GET", "/v2/models/plain/stats", b"{"), "C07", "unread"),
    counted(
        "after_an_exception", "failing", coded("raise ValueError", model="failing"), why="a failure"
    ),
    counted(
        "after_requests_that_were_refused",
        "refused",
        infer("refused", tensor("CODE", "INT8", [1])),
        infer("refused"),
        infer("refused", code(_SAY), tensor("Z", "FP32", [1])),
        why="what never reached the model",
    ),
    counted("after_too_few_responses", "short", coded("return []", model="short"), why="a failure"),
    counted("after_no_list", "odd", coded("return 5", model="odd"), why="a failure"),
    counted(
        "after_a_response_with_an_error",
        "errors",
        coded(
            "return [pb_utils.InferenceResponse(error=pb_utils.TritonError('no'))]", model="errors"
        ),
        why="executed, and a failure",
    ),
    counted("after_a_batch", "batched", in_batch("batched", 3), why="three inferences at once"),
    counted(
        "after_two_sizes",
        "two_sizes",
        in_batch("two_sizes", 4),
        in_batch("two_sizes", 2),
        in_batch("two_sizes", 4),
        why="an entry for each size",
    ),
    counted("after_too_large_a_batch", "too_large", in_batch("too_large", 9), why="refused"),
    counted(
        "after_a_stream", "streaming", streamed(_THREE, model="streaming"), why="each response"
    ),
    counted("after_a_stream_of_none", "silent", streamed(_NONE, model="silent"), why="empty"),
    counted(
        "after_a_stream_that_fails",
        "stream_that_fails",
        streamed(_SENDER + "sender.send(say(1))\nraise ValueError", model="stream_that_fails"),
        why="a response, and then an exception",
    ),
    counted(
        "after_a_stream_of_errors",
        "stream_of_errors",
        streamed(_SENDER + _ERROR + f"sender.send({_FINAL})", model="stream_of_errors"),
        why="an error for a response",
    ),
    counted(
        "after_generate",
        "generating",
        post("/v2/models/generating/generate", {"CODE": _SAY}),
        post("/v2/models/generating/generate", {"CODE": "raise ValueError"}),
        post("/v2/models/generating/generate", {}),
        why="like infer",
    ),
    counted("of_an_ensemble", "pipeline", coded(_SAY, model="pipeline"), why="as one request"),
    counted("of_its_step", "step", why="its own"),
    counted(
        "of_an_ensemble_that_fails",
        "pipeline_that_fails",
        coded("raise ValueError", model="pipeline_that_fails"),
        why="the failure of a step",
    ),
    counted("of_the_step_that_failed", "step_that_fails", why="its own"),
    counted(
        "of_a_model_that_another_asks",
        "asked",
        coded(
            "ask = pb_utils.InferenceRequest(model_name='asked', requested_output_names=['SAID'], "
            "inputs=[pb_utils.Tensor('CODE', np.array([b'return [say(1)]'], np.object_))])\n"
            "ask.exec()\nreturn [say(1)]",
            model="asking",
        ),
        why="as if a client had asked",
    ),
    counted("of_the_model_that_asks", "asking", why="once"),
    counted(
        "after_a_reload",
        "reloaded",
        coded(_SAY, model="reloaded"),
        post(
            "/v2/repository/models/reloaded/load",
            {"parameters": {"config": '{"backend": "python", "max_batch_size": 2}'}},
        ),
        why="from the start",
    ),
    counted(
        "after_an_unload",
        "unloaded",
        coded(_SAY, model="unloaded"),
        post("/v2/repository/models/unloaded/unload"),
        why="nobody's",
    ),
    counted(
        "after_an_unload_and_a_load",
        "unloaded",
        post("/v2/repository/models/unloaded/load"),
        why="from the start",
    ),
    Case(
        "statistics_over_grpc_after_two_successes",
        (
            coded(_SAY, model="over_grpc"),
            coded(_SAY, model="over_grpc"),
            LATER,
            Rpc("ModelStatistics", 'name: "over_grpc"'),
        ),
        "D07",
        "the same numbers",
    ),
    Case(
        "statistics_of_a_version_that_is_none_over_grpc",
        Rpc("ModelStatistics", 'name: "plain" version: "7"'),
        "D07",
        "unknown",
    ),
)
