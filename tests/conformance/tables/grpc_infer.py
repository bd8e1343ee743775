"""ModelInfer: parameters of every kind, outputs that are asked for, versions, wrong messages."""

from __future__ import annotations

from tests.conformance.cases import Bytes, Case, Rpc, called, message
from tests.conformance.repositories import Written

REPOSITORY = "grpc"
#: Says which of its versions was asked.
VERSIONS = Written(
    "versions",
    'backend: "python" version_policy: { all {} } '
    'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ] '
    'output [ { name: "SAID" data_type: TYPE_STRING dims: [ 1 ] } ] '
    "instance_group [ { kind: KIND_CPU } ]",
    {
        f"{number}/model.py": "import numpy as np\n"
        "import triton_python_backend_utils as pb_utils\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        f"        said = np.array([b'version {number}'], dtype=np.object_)\n"
        "        tensors = [pb_utils.Tensor('SAID', said)]\n"
        "        return [pb_utils.InferenceResponse(tensors) for _ in requests]\n"
        for number in (1, 2)
    },
)
ECHO = "return [say(1)]"
#: Sorted: they come in the order of a hash.
PARAMETERS = "return [say(sorted(json.loads(request.parameters()).items()))]"
SEQUENCE = "return [say(request.correlation_id(), request.flags(), request.timeout())]"
INFER = "/inference.GRPCInferenceService/ModelInfer"


def parameter(key: str, value: str, *, code: str = PARAMETERS) -> Rpc:
    return called(code, more=f'parameters {{ key: "{key}" value {{ {value} }} }}')


def output(parameters: str, name: str = "SAID") -> Rpc:
    return called(ECHO, more=f'outputs {{ name: "{name}" {parameters} }}')


def version(text: str) -> Rpc:
    tensor = ("X", "FP32", [1], bytes(4))
    return Rpc("ModelInfer", message("versions", tensor, more=f'model_version: "{text}"'))


# ---------------------------------------------------------------- parameters

PARAMETER_CASES = (
    Case("parameter_int64", parameter("p", "int64_param: -5"), "D23", "a number"),
    Case("parameter_bool", parameter("p", "bool_param: true"), "D23", "a boolean"),
    Case("parameter_string", parameter("p", 'string_param: "\\303\\244"'), "D23", "a text"),
    Case("parameter_double", parameter("p", "double_param: 0.25"), "D23", "a float"),
    Case("parameter_uint64", parameter("p", "uint64_param: 5"), "D23", "not for models"),
    Case("parameter_without_a_name", parameter("", "int64_param: 1"), "D23", "an empty key"),
    Case(
        "parameter_with_a_reserved_name",
        parameter("triton_x", "int64_param: 1"),
        "D23",
        "names that are Triton's",
    ),
    Case(
        "parameter_of_http",
        parameter("binary_data_output", "bool_param: true"),
        "D23",
        "it means something over HTTP only",
    ),
    Case(
        "headers_as_a_parameter",
        parameter("headers", 'string_param: "x"'),
        "D23",
        "nothing reserved",
    ),
    *(
        Case(f"sequence_{name}_over_grpc", parameter(key, value, code=SEQUENCE), "D23", why)
        for name, key, value, why in (
            ("id_as_a_number", "sequence_id", "int64_param: 7", "a number"),
            ("id_as_a_text", "sequence_id", 'string_param: "abc"', "a text"),
            ("id_negative", "sequence_id", "int64_param: -1", "as unsigned"),
            ("id_as_a_boolean", "sequence_id", "bool_param: true", "neither"),
            ("id_as_uint64", "sequence_id", "uint64_param: 7", "neither"),
            ("id_that_is_long", "sequence_id", f'string_param: "{"x" * 129}"', "129 signs"),
            ("start", "sequence_start", "bool_param: true", "the flag"),
            ("end", "sequence_end", "bool_param: true", "the flag"),
            ("end_as_a_text", "sequence_end", 'string_param: "true"', "not a boolean"),
        )
    ),
    *(
        Case(f"{name}_over_grpc", parameter(key, value, code=SEQUENCE), "D23", why)
        for name, key, value, why in (
            ("priority", "priority", "int64_param: 3", "a number"),
            ("priority_as_uint64", "priority", "uint64_param: 3", "unsigned too"),
            ("priority_negative", "priority", "int64_param: -1", "below zero"),
            ("priority_as_a_text", "priority", 'string_param: "1"', "a text"),
            ("timeout_of_a_minute", "timeout", "int64_param: 60000000", "in microseconds"),
            ("timeout_negative", "timeout", "int64_param: -1", "below zero"),
            ("timeout_as_uint64", "timeout", "uint64_param: 1", "signed only"),
            (
                "empty_final_as_a_text",
                "triton_enable_empty_final_response",
                'string_param: "true"',
                "not a boolean",
            ),
            (
                "empty_final_on_infer",
                "triton_enable_empty_final_response",
                "bool_param: true",
                "there is no stream to end",
            ),
        )
    ),
)

# ------------------------------------------------------------ outputs, models

OUTPUT_CASES = (
    Case("output_asked_for_over_grpc", output(""), "D22", "one of two"),
    Case("output_asked_for_twice_over_grpc", output('} outputs { name: "SAID"'), "D22", "twice"),
    Case("output_that_is_not_made", output("", "Y"), "D22", "the model does not give it"),
    Case("output_that_is_unknown_over_grpc", output("", "Z"), "D22", "no such output"),
    Case("output_without_a_name_over_grpc", output("", ""), "D22", "an empty name"),
    Case(
        "output_parameter_that_is_unknown",
        output('parameters { key: "binary_data" value { bool_param: true } }'),
        "D24",
        "ignored",
    ),
    Case(
        "output_in_a_region_that_is_unknown",
        output(
            'parameters { key: "shared_memory_region" value { string_param: "nowhere" } } '
            'parameters { key: "shared_memory_byte_size" value { int64_param: 64 } }'
        ),
        "D24",
        "never registered",
    ),
    Case(
        "output_in_a_region_without_a_size",
        output('parameters { key: "shared_memory_region" value { string_param: "nowhere" } }'),
        "D24",
        "how much of it",
    ),
    Case(
        "output_in_a_region_and_classified",
        output(
            'parameters { key: "shared_memory_region" value { string_param: "nowhere" } } '
            'parameters { key: "shared_memory_byte_size" value { int64_param: 64 } } '
            'parameters { key: "classification" value { int64_param: 1 } }'
        ),
        "D24",
        "one or the other",
    ),
    Case(
        "classification_as_a_text_over_grpc",
        output('parameters { key: "classification" value { string_param: "1" } }'),
        "D22",
        "a number",
    ),
    Case(
        "classification_of_none_over_grpc",
        output('parameters { key: "classification" value { int64_param: 0 } }'),
        "D22",
        "at least one",
    ),
    Case("id_over_grpc", called(ECHO, more='id: "an id"'), "D26", "comes back"),
    Case("infer_of_an_unknown_model_over_grpc", Rpc("ModelInfer", message("x")), "D04", "no such"),
    Case("infer_without_a_model", Rpc("ModelInfer"), "D04", "an empty message"),
    Case(
        "infer_with_the_id_of_an_unknown_model",
        Rpc("ModelInfer", message("x", more='id: "mine"')),
        "D26",
        "whether the id stands in the text",
    ),
    Case(
        "infer_of_a_decoupled_model",
        called(ECHO, model="coded_decoupled"),
        "D04",
        "needs a stream",
    ),
    Case(
        "infer_of_a_decoupled_model_with_wrong_data",
        Rpc("ModelInfer", 'model_name: "coded_decoupled"'),
        "D04",
        "what is said first",
    ),
    *(
        Case(f"version_{name}_over_grpc", version(text), "D25", why)
        for name, text, why in (
            ("newest", "", "the newest"),
            ("one", "1", "as it says"),
            ("two", "2", "as it says"),
            ("three", "3", "not there"),
            ("zero", "0", "versions begin at one"),
            ("minus_one", "-1", "the newest"),
            ("minus_two", "-2", "no version"),
            ("with_a_zero", "01", "still a number"),
            ("with_a_sign", "+1", "still a number in C++"),
            ("with_a_space", " 1", "still a number in C++"),
            ("with_a_tail", "1x", "a number and more"),
            ("of_a_float", "1.0", "not an integer"),
            ("of_a_text", "abc", "no number"),
            ("that_is_huge", "99999999999999999999", "beyond 64 bits"),
        )
    ),
    Case(
        "batch_over_grpc",
        Rpc(
            "ModelInfer",
            message(
                "add_sub",
                ("INPUT0", "FP32", [1, 16], bytes(64)),
                ("INPUT1", "FP32", [1, 16], bytes(64)),
            ),
        ),
        "D22",
        "two outputs in their order",
    ),
    Case(
        "batch_beyond_the_maximum",
        Rpc(
            "ModelInfer",
            message(
                "add_sub",
                ("INPUT0", "FP32", [9, 16], bytes(9 * 64)),
                ("INPUT1", "FP32", [9, 16], bytes(9 * 64)),
            ),
        ),
        "D20",
        "nine of at most eight",
    ),
    Case(
        "batch_without_its_dimension",
        Rpc(
            "ModelInfer",
            message(
                "add_sub",
                ("INPUT0", "FP32", [16], bytes(64)),
                ("INPUT1", "FP32", [16], bytes(64)),
            ),
        ),
        "D20",
        "the model wants one more",
    ),
    Case(
        "input_twice_over_grpc",
        Rpc(
            "ModelInfer",
            message(
                "add_sub",
                ("INPUT0", "FP32", [1, 16], bytes(64)),
                ("INPUT0", "FP32", [1, 16], bytes(64)),
            ),
        ),
        "D20",
        "the same name twice",
    ),
    Case("infer_of_no_message", Bytes(INFER, b"\xff\xff\xff"), "D04", "no protobuf"),
    Case("infer_of_a_text_that_is_none", Bytes(INFER, b"\x0a\x02\xff\xfe"), "D04", "no UTF-8"),
    Case(
        "infer_with_an_unknown_field",
        Bytes(INFER, b"\x0a\x01x\xf8\x07\x01"),
        "D04",
        "from tomorrow",
    ),
    Case(
        "deadline_that_passes",
        called("import time; time.sleep(1)\nreturn [say(1)]")._replace(timeout_s=0.25),
        "D36",
        "the client does not wait",
    ),
)

CASES = (*PARAMETER_CASES, *OUTPUT_CASES)
