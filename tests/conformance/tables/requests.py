"""A model's view of its request, and requests that it makes itself."""

from __future__ import annotations

from tests.conformance.cases import (
    Case,
    called,
    coded,
    elements,
    infer,
    post,
    said,
    tensor,
)

REPOSITORY = "main"
#: Sorted: over gRPC they come in the order of a hash.
PARAMETERS = "return [say(sorted(json.loads(request.parameters()).items()))]"
SHAPES = "return [say(sorted((t.name(), t.shape()) for t in request.inputs()))]"
IDENTITY = (
    "return [say(request.request_id(), request.correlation_id(), request.flags(), "
    "request.timeout())]"
)

CASES = (
    Case("id_of_a_request", said("request.request_id()", id="abc"), "A51", "the client's id"),
    Case("id_that_is_missing", said("request.request_id()"), "A51", "no id is an empty one"),
    Case(
        "id_that_is_a_number",
        said("request.request_id()", id=7),
        "C20",
        "an id must be a text",
    ),
    Case(
        "parameters_of_all_kinds",
        coded(PARAMETERS, parameters={"t": "x", "b": True, "i": -5, "big": 1 << 62}),
        "A52",
        "text, boolean and integer, as JSON",
    ),
    Case(
        "parameter_that_is_a_float",
        coded(PARAMETERS, parameters={"f": 0.5}),
        "A52",
        "a float in JSON",
    ),
    Case(
        "parameter_that_is_a_list",
        coded(PARAMETERS, parameters={"l": [1]}),
        "C28",
        "a parameter is one value",
    ),
    Case(
        "parameter_that_is_null",
        coded(PARAMETERS, parameters={"n": None}),
        "C28",
        "null is no value",
    ),
    Case(
        "parameters_that_are_missing",
        said("request.parameters()"),
        "A51",
        "the JSON text when there is none",
    ),
    Case(
        "parameters_that_are_empty",
        said("request.parameters()", parameters={}),
        "A51",
        "the JSON text when the client sends an empty object",
    ),
    Case(
        "parameters_as_text",
        said("request.parameters()", parameters={"b": 1, "a": 'ü"\n'}),
        "A51",
        "the JSON text itself: spaces, order and signs",
    ),
    Case(
        "parameter_that_is_reserved",
        coded(PARAMETERS, parameters={"triton_x": 1}),
        "C28",
        "names that begin with triton_",
    ),
    Case(
        "reserved_parameters_are_taken_out",
        coded(
            PARAMETERS,
            parameters={
                "sequence_id": 3,
                "sequence_start": True,
                "sequence_end": True,
                "priority": 0,
                "timeout": 1000000,
                "binary_data_output": False,
                "mine": 1,
            },
        ),
        "A52",
        "what Triton itself uses is no parameter of the model",
    ),
    Case(
        "parameters_over_grpc",
        called(
            PARAMETERS,
            more="""
            parameters { key: "b" value { bool_param: true } }
            parameters { key: "d" value { double_param: 0.5 } }
            parameters { key: "i" value { int64_param: -5 } }
            parameters { key: "s" value { string_param: "x" } }
            """,
        ),
        "A52",
        "each member of the oneof",
    ),
    Case(
        "uint64_parameter_over_grpc",
        called(PARAMETERS, more='parameters { key: "u" value { uint64_param: 5 } }'),
        "A52",
        "the newest member of the oneof",
    ),
    Case(
        "parameter_without_a_value_over_grpc",
        called(PARAMETERS, more='parameters { key: "nothing" value { } }'),
        "D23",
        "a parameter of which no member is set",
    ),
    Case(
        "identity_when_nothing_is_given",
        coded(IDENTITY),
        "A51",
        "correlation id, flags and timeout of a plain request",
    ),
    Case(
        "correlation_id_that_is_a_number",
        coded(IDENTITY, parameters={"sequence_id": 42, "sequence_start": True}),
        "A51",
        "a number stays one",
    ),
    Case(
        "correlation_id_that_is_a_text",
        coded(IDENTITY, parameters={"sequence_id": "s-1", "sequence_end": True}),
        "A51",
        "a text stays one",
    ),
    Case(
        "correlation_id_over_grpc",
        called(
            IDENTITY,
            more="""
            parameters { key: "sequence_id" value { string_param: "s-1" } }
            parameters { key: "sequence_start" value { bool_param: true } }
            """,
        ),
        "D23",
        "the same over gRPC",
    ),
    Case(
        "timeout_of_a_request",
        coded(IDENTITY, parameters={"timeout": 123456}),
        "A51",
        "microseconds, as they were given",
    ),
    Case(
        "timeout_that_is_a_text",
        coded(IDENTITY, parameters={"timeout": "5"}),
        "C28",
        "a timeout must be a number",
    ),
    Case(
        "timeout_that_is_a_text_over_grpc",
        called(IDENTITY, more='parameters { key: "timeout" value { string_param: "5" } }'),
        "D23",
        "the same over gRPC",
    ),
    Case(
        "sequence_start_that_is_a_number",
        coded(IDENTITY, parameters={"sequence_start": 1}),
        "C28",
        "a flag must be a boolean",
    ),
    Case(
        "sequence_start_that_is_a_number_over_grpc",
        called(IDENTITY, more='parameters { key: "sequence_start" value { int64_param: 1 } }'),
        "D23",
        "the same over gRPC",
    ),
    Case(
        "priority_below_zero",
        called(IDENTITY, more='parameters { key: "priority" value { int64_param: -1 } }'),
        "D23",
        "a priority is at least 0",
    ),
    Case(
        "flags_that_a_model_sets",
        coded("request.set_flags(2)\nreturn [say(request.flags())]"),
        "A51",
        "set_flags changes what flags says",
    ),
    Case(
        "requested_outputs",
        said(
            "sorted(request.requested_output_names())",
            outputs=[{"name": "Y"}, {"name": "SAID"}],
        ),
        "A51",
        "as the model sees them",
    ),
    Case(
        "requested_outputs_when_none_are_named",
        said("sorted(request.requested_output_names())"),
        "A51",
        "all outputs of the configuration",
    ),
    Case(
        "kind_of_the_requested_outputs",
        said("type(request.requested_output_names())", outputs=[{"name": "SAID"}]),
        "A51",
        "a set, where a list would promise an order",
    ),
    Case(
        "requested_output_that_is_unknown",
        said("request.requested_output_names()", outputs=[{"name": "OTHER"}]),
        "C43",
        "an output that the model does not have",
    ),
    Case(
        "requested_output_twice",
        said(
            "list(request.requested_output_names())",
            outputs=[{"name": "SAID"}, {"name": "SAID"}],
        ),
        "A51",
        "the same output asked for twice",
    ),
    Case(
        "arguments_of_initialize",
        said("sorted((k, v) for k, v in self.args.items() if k != 'model_config')"),
        "A22",
        "texts, each of them",
    ),
    Case(
        "model_config_of_initialize",
        said("json.loads(self.args['model_config'])"),
        "A22",
        "the configuration as the model reads it",
    ),
    Case(
        "directory_of_the_version",
        said("pb_utils.get_model_dir()"),
        "A09",
        "where the files of the version lie",
    ),
    Case(
        "cancelled_before_anybody_did",
        said("request.is_cancelled()"),
        "A54",
        "nobody has cancelled it",
    ),
    Case(
        "context_without_tracing",
        said("request.trace().get_context()"),
        "A64",
        "no trace has no context",
    ),
    # --------------------------------------------------------- requests that a model makes
    Case(
        "request_without_a_model",
        coded(
            "pb_utils.InferenceRequest(inputs=[], requested_output_names=[], model_name='')\n"
            "return [say('made')]"
        ),
        "A50",
        "an empty name is only found out when it is asked",
    ),
    Case(
        "request_without_arguments",
        coded("pb_utils.InferenceRequest()"),
        "A50",
        "three arguments are needed",
    ),
    Case(
        "request_with_a_float_as_correlation_id",
        coded(
            "pb_utils.InferenceRequest(correlation_id=1.5, inputs=[], "
            "requested_output_names=[], model_name='m')"
        ),
        "A50",
        "a number or a text",
    ),
    Case(
        "request_with_an_empty_output",
        coded(
            "pb_utils.InferenceRequest(request_id='r', inputs=[], requested_output_names=[''], "
            "model_name='m')"
        ),
        "A50",
        "a name must not be empty",
    ),
    Case(
        "request_with_a_float_as_parameter",
        coded(
            "pb_utils.InferenceRequest(inputs=[], requested_output_names=['a'], model_name='m', "
            "parameters={'f': 0.5})"
        ),
        "A52",
        "a model may send text, boolean and integer only",
    ),
    Case(
        "request_with_none_as_input",
        coded(
            "pb_utils.InferenceRequest(inputs=[None], requested_output_names=['a'], model_name='m')"
        ),
        "A50",
        "an input must be a tensor",
    ),
    Case(
        "request_as_it_was_made",
        coded(
            "made = pb_utils.InferenceRequest(request_id='r', correlation_id='c', "
            "inputs=request.inputs(), requested_output_names=['b', 'a', 'b'], model_name='m', "
            "flags=1, timeout=5, parameters={'p': True})\n"
            "return [say(made.request_id(), made.correlation_id(), made.flags(), made.timeout(), "
            "json.loads(made.parameters()), sorted(made.requested_output_names()), "
            "[t.name() for t in made.inputs()])]"
        ),
        "A50",
        "every accessor gives back what was given",
    ),
    Case(
        "set_release_flags_of_an_unknown_value",
        coded("request.set_release_flags(8)\nreturn [say(1)]"),
        "A55",
        "neither all nor reschedule",
    ),
    Case(
        "rescheduled_without_a_sequence",
        coded(
            "request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)\n"
            "return [say('again')]"
        ),
        "A55",
        "the place in the list must be None",
    ),
    # ----------------------------------------------------------------- batches
    Case(
        "batch_as_the_model_sees_it",
        infer(
            "coded_batched",
            tensor("CODE", "BYTES", [SHAPES], [1, 1]),
            tensor("X", "FP32", [1, 2, 3, 4], [1, 4]),
        ),
        "A41",
        "the dimension of the batch is there",
    ),
    Case(
        "batch_that_is_too_large",
        infer("coded_batched", tensor("CODE", "BYTES", ["x"] * 5, [5, 1])),
        "C46",
        "more than max_batch_size",
    ),
    Case(
        "batch_dimension_that_is_missing",
        infer("coded_batched", tensor("CODE", "BYTES", ["x"], [1])),
        "C45",
        "a batching model needs one dimension more",
    ),
    Case(
        "batches_of_two_sizes",
        infer(
            "coded_batched",
            tensor("CODE", "BYTES", ["x"], [1, 1]),
            tensor("X", "FP32", [1, 2], [2, 1]),
        ),
        "C46",
        "inputs of one request that disagree",
    ),
    Case(
        "batch_without_dimensions",
        infer(
            "coded_batched",
            tensor("CODE", "BYTES", ["x"], []),
        ),
        "C46",
        "no dimension at all",
    ),
    # ------------------------------------------------------------------ what is refused
    Case(
        "input_that_is_missing",
        post("/v2/models/coded/infer", {"inputs": []}),
        "C42",
        "an input that is not optional",
    ),
    Case(
        "input_that_is_unknown",
        said("1", tensor("Z", "FP32", [1])),
        "C43",
        "an input that the model does not have",
    ),
    Case(
        "input_of_another_type",
        said("1", tensor("X", "INT32", [1])),
        "C44",
        "the configuration says FP32",
    ),
    Case(
        "input_of_another_shape",
        infer("coded", tensor("CODE", "BYTES", ["a", "b"])),
        "C45",
        "two elements where one is expected",
    ),
    Case(
        "input_of_another_rank",
        said("1", tensor("X", "FP32", [1, 2], [1, 2])),
        "C45",
        "two dimensions where one is expected",
    ),
    Case(
        "input_twice",
        said("1", tensor("X", "FP32", [1]), tensor("X", "FP32", [2])),
        "C49",
        "the same name twice",
    ),
    Case(
        "refused_with_the_id_of_the_request",
        said("1", tensor("Z", "FP32", [1]), id="mine"),
        "C43",
        "how the id stands in the text",
    ),
    Case(
        "input_that_is_missing_over_grpc",
        called("return [say(1)]")._replace(message='model_name: "coded"'),
        "C42",
        "the same over gRPC",
    ),
    Case(
        "input_of_another_type_over_grpc",
        called("return [say(1)]", ("X", "INT32", [1], b"\0\0\0\0")),
        "C44",
        "the same over gRPC",
    ),
    Case(
        "input_with_too_few_bytes_over_grpc",
        called("return [say(1)]", ("X", "FP32", [2], b"\0\0\0\0")),
        "C47",
        "four bytes where eight are expected",
    ),
    Case(
        "bytes_with_a_length_beyond_the_data_over_grpc",
        called("return [say(1)]")._replace(
            message='model_name: "coded" '
            'inputs { name: "CODE" datatype: "BYTES" shape: [1] } '
            'raw_input_contents: "\\377\\0\\0\\0ab"'
        ),
        "C47",
        "a length prefix beyond the data",
    ),
    Case(
        "bytes_with_an_element_too_many_over_grpc",
        called("return [say(1)]")._replace(
            message='model_name: "coded" '
            'inputs { name: "CODE" datatype: "BYTES" shape: [1] } '
            'raw_input_contents: "' + "".join(f"\\{byte:03o}" for byte in elements("a", "b")) + '"'
        ),
        "C47",
        "two elements where one is expected",
    ),
)
