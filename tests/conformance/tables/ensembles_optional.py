"""Pipelines whose steps leave outputs out, or have inputs that need not be given."""

from __future__ import annotations

from tests.conformance.cases import Case, Http, Stream, call, get, infer, message, tensor
from tests.conformance.repositories import Written
from tests.conformance.tables.ensembles import step

REPOSITORY = "ensembles_optional"
OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--exit-on-error=false",
    "--strict-readiness=false",
)

#: Makes Y of what is above zero only.
_HALF = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.made(request)) for request in requests]

    def made(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        both = [pb_utils.Tensor("X", x), pb_utils.Tensor("Y", x * 10)]
        return both if x.flat[0] > 0 else both[:1]
"""
_HALVES = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sender = request.get_response_sender()
            for by, name in ((1, "X"), (2, "XY"), (3, ""), (4, "X"), (5, "Y")):
                tensors = [pb_utils.Tensor(one, x * by) for one in name]
                sender.send(pb_utils.InferenceResponse(tensors))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_SUM = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.sum(request)]) for request in requests]

    def sum(self, request):
        found = [pb_utils.get_input_tensor_by_name(request, name) for name in "XY"]
        values = [one.as_numpy() for one in found if one is not None]
        return pb_utils.Tensor("OUT", sum(values, np.full(1, 0.5, np.float32)))
"""


def _tensors(kind: str, *names: str, more: str = "") -> str:
    return "".join(
        f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] {more} }}\n' for name in names
    )


def _model(name: str, code: str, config: str) -> Written:
    return Written(name, f'backend: "python"\n{config}', {"1/model.py": code})


def _ensemble(name: str, tensors: str, *steps: str) -> Written:
    scheduling = f"ensemble_scheduling {{ {' '.join(steps)} }}\n"
    return Written(name, f'platform: "ensemble"\n{tensors}{scheduling}', {"1/.keep": ""})


_OPTIONAL = "optional: true"
_IN_OUT = _tensors("input", "IN") + _tensors("output", "OUT")
_HALF_STEP = step("half", {"IN": "IN"}, {"X": "x", "Y": "y"})
_BOTH = {"X": "x", "Y": "y"}
_SQUARE = "data_type: TYPE_FP32 dims: [ 2, 3 ] }\n"


def _batched(name: str, dims: str) -> Written:
    """An ensemble of batches over a model that has none."""
    tensors = (
        f'max_batch_size: 4\ninput {{ name: "IN" data_type: TYPE_FP32 dims: [ {dims} ] }}\n'
        f'output {{ name: "OUT" data_type: TYPE_FP32 dims: [ {dims} ] }}\n'
    )
    return _ensemble(name, tensors, step("rows", {"IN": "IN"}, {"OUT": "OUT"}))


_ROWS = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "IN") for request in requests]
        outputs = [pb_utils.Tensor("OUT", one.as_numpy()) for one in given]
        return [pb_utils.InferenceResponse([one]) for one in outputs]
"""
MODELS = (
    _model("half", _HALF, _tensors("input", "IN") + _tensors("output", "X", "Y")),
    _model(
        "halves",
        _HALVES,
        "model_transaction_policy { decoupled: true }\n"
        + _tensors("input", "IN")
        + _tensors("output", "X", "Y"),
    ),
    _model(
        "sum",
        _SUM,
        _tensors("input", "X") + _tensors("input", "Y", more=_OPTIONAL) + _tensors("output", "OUT"),
    ),
    _model(
        "lenient", _SUM, _tensors("input", "X", "Y", more=_OPTIONAL) + _tensors("output", "OUT")
    ),
    _model("strict", _SUM, _tensors("input", "X", "Y") + _tensors("output", "OUT")),
    _model("rows", _ROWS, f'input {{ name: "IN" {_SQUARE}output {{ name: "OUT" {_SQUARE}'),
    _ensemble("left_out", _IN_OUT, _HALF_STEP, step("sum", _BOTH, {"OUT": "OUT"})),
    _ensemble("needed", _IN_OUT, _HALF_STEP, step("strict", _BOTH, {"OUT": "OUT"})),
    _ensemble("outputs", _tensors("input", "IN") + _tensors("output", "x", "y"), _HALF_STEP),
    _ensemble(
        "two_readers",
        _IN_OUT + _tensors("output", "OUT2"),
        _HALF_STEP,
        step("lenient", {"Y": "y"}, {"OUT": "OUT2"}),
        step("sum", _BOTH, {"OUT": "OUT"}),
    ),
    _ensemble("unused", _IN_OUT, _HALF_STEP, step("lenient", {"Y": "y"}, {"OUT": "OUT"})),
    _ensemble(
        "not_mapped",
        _IN_OUT,
        step("half", {"IN": "IN"}, {"X": "x"}),
        step("sum", {"X": "x"}, {"OUT": "OUT"}),
    ),
    _ensemble(
        "given",
        _tensors("input", "IN")
        + _tensors("input", "MORE", more=_OPTIONAL)
        + _tensors("output", "OUT"),
        step("sum", {"X": "IN", "Y": "MORE"}, {"OUT": "OUT"}),
    ),
    _ensemble(
        "flowing_halves",
        _IN_OUT,
        step("halves", {"IN": "IN"}, _BOTH),
        step("lenient", _BOTH, {"OUT": "OUT"}),
    ),
    _ensemble(
        "flowing_needed",
        _IN_OUT,
        step("halves", {"IN": "IN"}, _BOTH),
        step("sum", _BOTH, {"OUT": "OUT"}),
    ),
    _batched("batched_columns", "3"),
    _batched("batched_any", "-1, 3"),
    _batched("batched_two", "2"),
    _batched("batched_four", "4"),
)


def request(model: str, value: float, *outputs: str) -> Http:
    named = {"outputs": [{"name": name} for name in outputs]} if outputs else {}
    return infer(model, tensor("IN", "FP32", [value]), **named)


def rows(model: str, *shape: int) -> Http:
    count = 1
    for size in shape:
        count *= size
    return infer(model, tensor("IN", "FP32", [1.0] * count, shape))


def flowing(model: str) -> Stream:
    return Stream([message(model, ("IN", "FP32", [1], b"\x00\x00\x80?"))])


_MINUS = ("IN", "FP32", [1], b"\x00\x00\x80\xbf")

CASES = (
    Case("optional_made", request("left_out", 1.0), "E59", "both are there"),
    Case("optional_left_out", request("left_out", -1.0), "E59", "the step runs without it"),
    Case("optional_left_out_over_grpc", call("left_out", _MINUS), "E59", "the same"),
    Case("needed_made", request("needed", 1.0), "E59", "both are there"),
    Case("needed_left_out", request("needed", -1.0), "E59", "the step refuses it"),
    Case("needed_left_out_over_grpc", call("needed", _MINUS), "E59", "the same"),
    Case("outputs_made", request("outputs", 1.0), "E59", "both are there"),
    Case("output_left_out", request("outputs", -1.0), "E59", "the answer has the other one"),
    Case("output_left_out_is_asked", request("outputs", -1.0, "y"), "E59", "an empty answer"),
    Case("output_made_is_asked", request("outputs", -1.0, "x"), "E59", "that alone"),
    Case("optional_of_two_readers", request("two_readers", 1.0), "E59", "both have it"),
    Case("optional_of_two_readers_left_out", request("two_readers", -1.0), "E59", "neither has it"),
    Case(
        "optional_of_two_readers_for_one",
        request("two_readers", -1.0, "OUT2"),
        "E59",
        "it alone runs",
    ),
    Case("optional_not_mapped", request("not_mapped", 1.0), "E59", "it need not be"),
    Case("optional_input_not_given", request("given", 1.0), "E59", "it runs without it"),
    Case(
        "optional_input_given",
        infer("given", tensor("IN", "FP32", [1.0]), tensor("MORE", "FP32", [4.0])),
        "E59",
        "it goes to the step",
    ),
    Case(
        "optional_input_alone",
        infer("given", tensor("MORE", "FP32", [4.0])),
        "E59",
        "the other is needed",
    ),
    Case("optional_in_responses", flowing("flowing_halves"), "E59", "each has its own"),
    Case("needed_in_responses", flowing("flowing_needed"), "E59", "the first without it ends all"),
    Case("unused_tensor", request("unused", 1.0), "E59", "it is not loaded"),
    Case("batches_over_columns", rows("batched_columns", 2, 3), "E51", "the batch is a dimension"),
    Case("batches_over_one_column", rows("batched_columns", 1, 3), "E51", "the step refuses it"),
    Case("batches_over_many", rows("batched_columns", 5, 3), "E51", "its own maximum"),
    Case("batches_of_one", rows("batched_any", 1, 2, 3), "E51", "a batch of one is none"),
    Case("batches_of_two", rows("batched_any", 2, 2, 3), "E51", "the step refuses it"),
    Case("batches_of_other_rows", rows("batched_any", 1, 1, 3), "E51", "the step refuses it"),
    Case("batches_that_never_fit", rows("batched_two", 1, 2), "E51", "it is not loaded"),
    Case("batches_that_never_fit_either", rows("batched_four", 1, 4), "E51", "it is not loaded"),
    Case("optional_configuration", get("/v2/models/given/config"), "E90", "as it is completed"),
)
