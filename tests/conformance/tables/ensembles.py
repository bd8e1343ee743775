"""Pipelines of models: what goes through, what is asked for, and what the outside sees of it."""

from __future__ import annotations

from tests.conformance.cases import (
    Case,
    Http,
    Stream,
    call,
    get,
    infer,
    message,
    post,
    tensor,
)
from tests.conformance.repositories import Written

REPOSITORY = "ensembles"

_ECHO = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if x.size and x.flat[0] < 0:
            error = pb_utils.TritonError("below zero", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        seen = [
            request.request_id(),
            sorted(json.loads(request.parameters()).items()),
            request.correlation_id(),
            request.flags(),
            sorted(request.requested_output_names()),
        ]
        outputs = [
            pb_utils.Tensor("OUT", x + 1),
            pb_utils.Tensor("SEEN", np.array([repr(seen).encode()], np.object_)),
        ]
        asked = request.requested_output_names()
        return pb_utils.InferenceResponse([one for one in outputs if one.name() in asked])
"""
_MANY = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sender = request.get_response_sender()
            for value in range(int(x.flat[0])):
                made = pb_utils.Tensor("OUT", np.full(x.shape, value, np.float32))
                sender.send(pb_utils.InferenceResponse([made]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_IN = 'input {{ name: "IN" data_type: TYPE_FP32 dims: [ {} ] }}\n'
_OUT = 'output {{ name: "OUT" data_type: TYPE_FP32 dims: [ {} ] {} }}\n'
_SEEN = 'output { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] }\n'
_LABELS = 'label_filename: "labels.txt"'
_RESHAPE = "reshape { shape: [ 2, 2 ] }"


def _model(name: str, dims: str = "4", more: str = "", labels: str = "") -> Written:
    config = f'backend: "python"\n{_IN.format(dims)}{_OUT.format(dims, labels)}{_SEEN}{more}'
    files = {"1/model.py": _ECHO, **({"labels.txt": "a\nb\nc\nd\n"} if labels else {})}
    return Written(name, config, files)


def step(model: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs.items()]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs.items()]
    return f'step {{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}\n'


def _ensemble(name: str, *steps: str, more: str = "", **shape: str) -> Written:
    """X goes in; Y and whatever else is named comes out."""
    dims = shape.get("dims", "4")
    tensors = (
        f'input {{ name: "X" data_type: TYPE_FP32 dims: [ {dims} ] {shape.get("given", "")} }}\n'
        f'output {{ name: "Y" data_type: TYPE_FP32 dims: [ {dims} ] {shape.get("made", "")} }}\n'
    )
    scheduling = f"ensemble_scheduling {{ {' '.join(steps)} }}\n"
    files = {"1/.keep": ""}
    if _LABELS in shape.get("made", ""):
        files["labels.txt"] = "e\nf\ng\nh\n"
    return Written(name, f'platform: "ensemble"\n{tensors}{more}{scheduling}', files)


_ONE = step("labelled", {"IN": "X"}, {"OUT": "Y"})
_STRINGS = 'output { name: "SAID" data_type: TYPE_STRING dims: [ 1 ] }\n'
_BATCHES = "max_batch_size: 4\n"
MODELS = (
    _model("plain"),
    _model("labelled", labels=_LABELS),
    _model("square", "2, 2"),
    _model("batched", more=_BATCHES),
    Written(
        "many",
        f'backend: "python"\n{_IN.format(4)}{_OUT.format(4, "")}'
        "model_transaction_policy { decoupled: true }\n",
        {"1/model.py": _MANY},
    ),
    _ensemble("one", _ONE),
    _ensemble("own_labels", _ONE, made=_LABELS),
    _ensemble("shaped", step("square", {"IN": "X"}, {"OUT": "Y"}), given=_RESHAPE, made=_RESHAPE),
    _ensemble(
        "row",
        step("plain", {"IN": "X"}, {"OUT": "t"}),
        step("plain", {"IN": "t"}, {"OUT": "Y", "SEEN": "SAID"}),
        more=_STRINGS,
    ),
    _ensemble(
        "fork",
        step("plain", {"IN": "X"}, {"OUT": "Y"}),
        step("labelled", {"IN": "X"}, {"SEEN": "SAID"}),
        more=_STRINGS,
    ),
    _ensemble(
        "in_batches",
        step("batched", {"IN": "X"}, {"OUT": "t"}),
        step("batched", {"IN": "t"}, {"OUT": "Y"}),
        more=_BATCHES,
    ),
    _ensemble("of_an_ensemble", step("one", {"X": "X"}, {"Y": "Y"})),
    _ensemble(
        "flowing",
        step("many", {"IN": "X"}, {"OUT": "t"}),
        step("plain", {"IN": "t"}, {"OUT": "Y"}),
    ),
)
OPTIONS = ("--model-control-mode=explicit", "--load-model=*")

_FOUR = [1.0, 4.0, 3.0, 2.0]


def request(model: str, *outputs: object, data: list[float] | None = None, **rest: object) -> Http:
    values = _FOUR if data is None else data
    named = {"outputs": list(outputs)} if outputs else {}
    return infer(model, tensor("X", "FP32", values), **named, **rest)


def classes(model: str) -> Http:
    return request(model, {"name": "Y", "parameters": {"classification": 2}})


_RAW = b"\x00\x00\x80?" * 4
_THREE = b"\x00\x00\x40\x40" * 4

CASES = (
    Case("ensemble_of_one", request("one"), "E53", "what the step makes"),
    Case("ensemble_in_a_row", request("row"), "E53", "a step has what the one before has made"),
    Case("ensemble_forked", request("fork"), "E53", "two steps of one input"),
    Case("ensemble_one_output_asked", request("fork", {"name": "Y"}), "E53", "only that"),
    Case(
        "ensemble_other_output_asked", request("row", {"name": "SAID"}), "E53", "only what is asked"
    ),
    Case("ensemble_unknown_output", request("row", {"name": "Z"}), "E53", "there is none"),
    Case("ensemble_of_an_ensemble", request("of_an_ensemble"), "E53", "a step may be one"),
    Case("ensemble_wrong_shape", request("one", data=[1.0, 2.0]), "E51", "checked before any step"),
    Case(
        "ensemble_wrong_type",
        infer("one", tensor("X", "INT32", [1, 2, 3, 4])),
        "E51",
        "checked before any step",
    ),
    Case("ensemble_error_of_a_step", request("row", data=[-1.0] * 4), "E54", "the ensemble's name"),
    Case(
        "ensemble_error_of_the_last_step",
        request("row", data=[-2.0] * 4),
        "E54",
        "the first decides",
    ),
    Case(
        "ensemble_error_two_deep",
        request("of_an_ensemble", data=[-1.0] * 4),
        "E54",
        "both names",
    ),
    Case(
        "ensemble_id_and_parameters",
        request("row", id="seven", parameters={"mine": 5, "priority": 0}),
        "E58",
        "each step has them",
    ),
    Case(
        "ensemble_in_a_sequence",
        request("row", parameters={"sequence_id": 9, "sequence_start": True}),
        "E58",
        "each step has it",
    ),
    Case("ensemble_labels_of_a_step", classes("one"), "E35", "it has none of its own"),
    Case("ensemble_labels_of_its_own", classes("own_labels"), "E35", "they stand before others"),
    Case("ensemble_classes_without_labels", classes("shaped"), "E35", "nobody has any"),
    Case("ensemble_reshaped", request("shaped"), "E31", "its step sees two rows of two"),
    Case(
        "ensemble_in_batches",
        infer("in_batches", tensor("X", "FP32", _FOUR * 3, [3, 4])),
        "E53",
        "the first dimension goes along",
    ),
    Case(
        "ensemble_too_large_a_batch",
        infer("in_batches", tensor("X", "FP32", _FOUR * 5, [5, 4])),
        "E51",
        "its own maximum",
    ),
    Case("ensemble_over_grpc", call("row", ("X", "FP32", [4], _RAW)), "E53", "the same"),
    Case(
        "ensemble_error_over_grpc",
        call("row", ("X", "FP32", [4], b"\x00\x00\x80\xbf" * 4)),
        "E54",
        "the same",
    ),
    Case(
        "ensemble_of_responses",
        Stream([message("flowing", ("X", "FP32", [4], _THREE))]),
        "E55",
        "each flows on by itself",
    ),
    Case(
        "ensemble_of_no_responses",
        Stream([message("flowing", ("X", "FP32", [4], bytes(16)))]),
        "E55",
        "the end alone",
    ),
    Case(
        "ensemble_of_responses_asked_once", request("flowing"), "E55", "one answer cannot hold them"
    ),
    Case("ensemble_configuration", get("/v2/models/row/config"), "E90", "as it is completed"),
    Case("ensemble_of_many_configuration", get("/v2/models/flowing/config"), "E90", "decoupled"),
    Case("ensemble_metadata", get("/v2/models/in_batches"), "C05", "the platform, and -1 first"),
    Case("ensemble_index", post("/v2/repository/index", {}), "F15", "all of them are ready"),
)
