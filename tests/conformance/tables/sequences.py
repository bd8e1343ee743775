"""Sequences, their control tensors, states and steps; and which requests share a batch.

A model reports what it is given. Each case ends the sequences that it begins, and has ids of its
own.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.cases import Case, Http, Rpc, Stream, coded, infer, message, post, tensor
from tests.conformance.repositories import Model, Written

_REPORTING = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request, len(requests)) for request in requests]

    def _answer(self, request, count):
        inputs = {}
        for one in sorted(request.inputs(), key=lambda one: one.name()):
            array = one.as_numpy()
            elements = [e.decode() if type(e) is bytes else e for e in array.ravel().tolist()]
            inputs[one.name()] = [str(array.dtype), list(array.shape), elements]
        report = json.dumps([count, request.correlation_id(), request.flags(), inputs])
        said = pb_utils.Tensor("REPORT", np.array([[report.encode()]], dtype=object))
        state = pb_utils.get_input_tensor_by_name(request, "BEFORE")
        if state is None:
            return pb_utils.InferenceResponse([said])
        after = pb_utils.Tensor("AFTER", state.as_numpy())
        return pb_utils.InferenceResponse([said, after])
"""

#: Executed three times each; says what it was told with each step.
_STEPPING = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.steps = {}

    def execute(self, requests):
        return [self._step(request) for request in requests]

    def _step(self, request):
        start, ready, end = [
            pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()
            for name in ("START", "READY", "END")
        ]
        if not ready:
            return pb_utils.InferenceResponse([])
        steps = self.steps.setdefault(request.correlation_id(), [])
        steps.append([request.correlation_id(), request.flags(), start, end])
        if len(steps) < 3:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        report = json.dumps(self.steps.pop(request.correlation_id())).encode()
        said = pb_utils.Tensor("REPORT", np.array([[report]], dtype=object))
        return pb_utils.InferenceResponse([said])
"""

#: Says how many requests came together; the first of its elements is how long it takes, in tenths
#: of a second.
_COUNTING = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        first = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()
        time.sleep(first.flat[0] / 10)
        count = np.array([[len(requests)]], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("COUNT", count)]) for _ in requests]
"""

_BASE = """
backend: "python"
max_batch_size: 4
input [ { name: "VALUE", data_type: TYPE_INT32, dims: [ 1 ] } ]
output [ { name: "REPORT", data_type: TYPE_STRING, dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""


def _control(name: str, fields: str, kind: str = "") -> str:
    kind = kind or f"CONTROL_SEQUENCE_{name}"
    return f'{{ name: "{name}" control [ {{ kind: {kind} {fields} }} ] }}'


def _controls(*controls: str) -> str:
    return f"control_input [ {', '.join(controls)} ]\n"


_FLAGS = _controls(
    _control("START", "int32_false_true: [ 0, 1 ]"),
    _control("READY", "int32_false_true: [ 0, 1 ]"),
    _control("END", "int32_false_true: [ 0, 1 ]"),
)


def _batching(text: str) -> str:
    return f"sequence_batching {{ max_sequence_idle_microseconds: 60000000 {text} }}\n"


def _model(name: str, batching: str, code: str = _REPORTING, **files: str) -> Written:
    stored = {f"initial_state/{file}": text for file, text in files.items()}
    return Written(name, _BASE + _batching(batching), {"1/model.py": code, **stored})


def _named(data_type: str) -> str:
    return _controls(_control("CORRID", f"data_type: TYPE_{data_type}"))


def _state(first: str = "", data_type: str = "TYPE_INT32", dims: str = "1", **more: str) -> str:
    begin = ""
    if first:
        initial = {
            "name": 'name: "n"',
            "type": f"data_type: {data_type}",
            "dims": f"dims: [ {dims} ]",
        }
        initial.update(more)
        begin = f"initial_state [ {{ {' '.join(initial.values())} {first} }} ]"
    return (
        f'state [ {{ input_name: "BEFORE" output_name: "AFTER" data_type: {data_type} '
        f"dims: [ {dims} ] {begin} }} ]"
    )


def _counting(name: str, x: str = "", y: str = "") -> Written:
    config = f"""
backend: "python"
max_batch_size: 8
input [ {{ name: "X", data_type: TYPE_INT32, dims: [ -1 ] {x} }} {y} ]
output [ {{ name: "COUNT", data_type: TYPE_INT32, dims: [ 1 ] }} ]
instance_group [ {{ kind: KIND_CPU }} ]
dynamic_batching {{ }}
"""
    return Written(name, config, {"1/model.py": _COUNTING})


_OPTIONAL = ', { name: "Y", data_type: TYPE_INT32, dims: [ 1 ] optional: true }'
_ZERO = "zero_data: true"

_GOOD: tuple[Written, ...] = (
    _model("direct", "direct { }" + _FLAGS),
    _model("oldest", "oldest { max_candidate_sequences: 4 }" + _FLAGS),
    _model("fp32", _FLAGS.replace("int32_false_true: [ 0, 1 ]", "fp32_false_true: [ 0.5, 2 ]")),
    _model(
        "bool", _FLAGS.replace("int32_false_true: [ 0, 1 ]", "bool_false_true: [ true, false ]")
    ),
    *(
        _model(f"id_{kind.lower()}", _named(kind))
        for kind in ("UINT64", "INT64", "UINT32", "INT32")
    ),
    _model("zeros", _state(_ZERO)),
    _model("filed", _state('data_file: "f"'), f="abcd and more"),
    _model("texts", _state('data_file: "f"', "TYPE_STRING"), f="\x03\0\0\0abc"),
    _model("no_texts", _state("", "TYPE_STRING", "2")),
    _model("clashing", _state(_ZERO).replace("BEFORE", "VALUE")),
    _model("steps_direct", "iterative_sequence: true direct { }" + _FLAGS, _STEPPING),
    _model("steps_oldest", "iterative_sequence: true oldest { }" + _FLAGS, _STEPPING),
    _counting("even"),
    _counting("ragged", "allow_ragged_batch: true"),
    _counting("optional", "", _OPTIONAL),
)
_WRONG: tuple[Written, ...] = (
    _model("wrong_type", _state(_ZERO, type="data_type: TYPE_FP32")),
    _model("wrong_name", _state(_ZERO, name="")),
    _model("wrong_rank", _state(_ZERO, dims="1, 1").replace("1, 1 ] zero", "1 ] zero")),
    _model("wrong_dim", _state(_ZERO, dims="2").replace("2 ] zero", "3 ] zero")),
    _model("wrong_free", _state(_ZERO, dims="-1")),
    _model("wrong_data", _state(" ")),
    _model("wrong_size", _state('data_file: "f"', dims="2"), f="abcd"),
    _model("wrong_file", _state('data_file: "f"')),
    _model("wrong_twice", _state(_ZERO) + _state(_ZERO)),
    _model("wrong_both", _state(f"{_ZERO} }}, {{ {_ZERO}")),
)

REPOSITORY = "sequences"
MODELS: tuple[Model | Written, ...] = (Model("coded"), *_GOOD, *_WRONG)
OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=coded",
    *(f"--load-model={model.name}" for model in _GOOD),
)

_START, _END = 1, 2


def _step(model: str, sequence: int | str | None, flags: int = 0, count: int = 1) -> Http:
    parameters: dict[str, Any] = {}
    if sequence is not None:
        parameters["sequence_id"] = sequence
    if flags & _START:
        parameters["sequence_start"] = True
    if flags & _END:
        parameters["sequence_end"] = True
    values = tensor("VALUE", "INT32", list(range(5, 5 + count)), [count, 1])
    return infer(model, values, parameters=parameters)


def _text(model: str, sequence: int | str, flags: int = 0) -> str:
    field = "string_param" if isinstance(sequence, str) else "int64_param"
    value = f'"{sequence}"' if isinstance(sequence, str) else sequence
    more = f'parameters {{ key: "sequence_id" value {{ {field}: {value} }} }}'
    for flag, name in ((_START, "sequence_start"), (_END, "sequence_end")):
        if flags & flag:
            more += f' parameters {{ key: "{name}" value {{ bool_param: true }} }}'
    return message(model, ("VALUE", "INT32", [1, 1], b"\5\0\0\0"), more=more)


def _call(model: str, sequence: int | str, flags: int = 0) -> Rpc:
    return Rpc("ModelInfer", _text(model, sequence, flags))


def _together(model: str, *shapes: str) -> Http:
    """Return how many requests were executed together, while one keeps the model busy.

    Each shape is the input of a request as an expression. Answers are sorted.
    """
    return coded(f"""
import time
said, threads = [], []
def number(name, *values):
    return pb_utils.Tensor(name, np.array([values], np.int32))
def ask(inputs):
    answer = pb_utils.InferenceRequest(
        model_name={model!r}, inputs=inputs, requested_output_names=['COUNT']).exec()
    if answer.has_error():
        said.append(answer.error().message())
    else:
        said.append(answer.output_tensors()[0].as_numpy().item())
for inputs in [[number('X', 5)], {", ".join(shapes)}]:
    threads.append(threading.Thread(target=ask, args=(inputs,)))
    threads[-1].start()
    time.sleep(0.1)
for thread in threads:
    thread.join()
return [say(sorted(map(str, said)))]
""")


def _load(model: str) -> Http:
    return post(f"/v2/repository/models/{model}/load")


def _cases(model: str, first: int) -> list[Case]:
    """Return the cases that both strategies have in common; ids from `first` on."""
    one, two, three = first, first + 1, first + 2
    rows = (
        ("alone", _step(model, one, _START | _END), "E70", "one request is a whole sequence"),
        (
            "begun_and_ended",
            (_step(model, one, _START), _step(model, one), _step(model, one, _END)),
            "E72",
            "the model is told where it begins and ends",
        ),
        ("not_begun", _step(model, one), "E70", "START was forgotten"),
        ("end_of_nothing", _step(model, one, _END), "E70", "END comes twice"),
        (
            "after_the_end",
            (_step(model, one, _START | _END), _step(model, one)),
            "E70",
            "a client that goes on",
        ),
        ("without_an_id", _step(model, None, _START), "E70", "the id was forgotten"),
        ("id_zero", _step(model, 0, _START), "E70", "zero is no id"),
        ("id_empty", _step(model, "", _START), "E70", "nor is an empty string"),
        (
            "named",
            (_step(model, "a name", _START), _step(model, "a name", _END)),
            "E70",
            "ids may be strings",
        ),
        ("name_not_begun", _step(model, "a name"), "E70", "START was forgotten"),
        ("two_in_one", _step(model, one, _START, 2), "E70", "a batch is no step"),
        (
            "begun_twice",
            (_step(model, one, _START), _step(model, one, _START), _step(model, one, _END)),
            "E71",
            "a client that was started anew",
        ),
        (
            "second_alone",
            (
                _step(model, two, _START),
                _step(model, three, _START),
                _step(model, three, _END),
                _step(model, two, _END),
            ),
            "E72",
            "its place is behind that of another, which is empty",
        ),
        (
            "over_grpc",
            (_call(model, one, _START), _call(model, one), _call(model, one, _END)),
            "E70",
            "the same over gRPC",
        ),
        ("not_begun_over_grpc", _call(model, "a name"), "E70", "START was forgotten"),
        ("id_zero_over_grpc", _call(model, 0, _START), "E70", "zero is no id"),
        (
            "on_one_stream",
            Stream([_text(model, one, _START), _text(model, one), _text(model, one, _END)]),
            "E77",
            "one by one and in order",
        ),
    )
    return [Case(f"{model}_{name}", request, row, why) for name, request, row, why in rows]


_BIG = (1 << 40) + 7

CASES = [
    *_cases("direct", 10),
    *_cases("oldest", 20),
    *(
        Case(f"controls_of_{kind}", _step(kind, 5, _START | _END), "E72", "each type of flag")
        for kind in ("fp32", "bool")
    ),
    *(
        Case(f"{model}_{name}", _step(model, sequence, _START | _END), "E72", "each type of id")
        for model in ("id_uint64", "id_int64", "id_uint32", "id_int32")
        for name, sequence in (("small", 7), ("large", _BIG))
    ),
    Case("state_of_zeros", _step("zeros", 5, _START | _END), "E75", "begins with zeros"),
    Case("state_of_a_file", _step("filed", 5, _START | _END), "E75", "the file may be longer"),
    Case("state_of_texts", _step("texts", 5, _START | _END), "E75", "a file of strings"),
    Case("state_of_no_texts", _step("no_texts", 5, _START | _END), "E75", "empty strings"),
    Case("state_named_like_an_input", _step("clashing", 5, _START | _END), "E75", "goes before it"),
    *(
        Case(f"load_of_{model.name}", _load(model.name), "E75", "a state that cannot begin")
        for model in _WRONG
    ),
    Case("steps_of_a_request", _step("steps_direct", None), "E76", "no id is needed"),
    Case("steps_of_the_oldest", _step("steps_oldest", None), "E76", "nor by the other strategy"),
    Case(
        "steps_of_a_sequence",
        (_step("steps_direct", 7, _START), _step("steps_direct", 7)),
        "E76",
        "who names a sequence must start it",
    ),
    Case("steps_of_two_in_one", _step("steps_direct", None, 0, 2), "E76", "a batch is no step"),
    Case("steps_over_grpc", _call("steps_oldest", "a name", _END), "E76", "the same over gRPC"),
    Case(
        "batch_of_one_shape",
        _together("even", "[number('X', 0, 1)]", "[number('X', 0, 2)]"),
        "E61",
        "the same shape waits together",
        is_timed=True,
    ),
    Case(
        "batch_of_two_shapes",
        _together("even", "[number('X', 0, 1)]", "[number('X', 0)]"),
        "E61",
        "two shapes do not",
        is_timed=True,
    ),
    Case(
        "batch_of_ragged_shapes",
        _together("ragged", "[number('X', 0, 1)]", "[number('X', 0)]", "[number('X', 0, 0, 0)]"),
        "E33",
        "but where they may",
        is_timed=True,
    ),
    Case(
        "batch_of_optional_inputs",
        _together(
            "optional",
            "[number('X', 0), number('Y', 1)]",
            "[number('X', 0), number('Y', 2)]",
            "[number('X', 0)]",
        ),
        "E30",
        "the same inputs wait together, others do not",
        is_timed=True,
    ),
]
